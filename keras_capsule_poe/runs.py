"""Trained models as dicts: `results` for tables of them, and `sweep`, which trains many."""

import contextlib
import glob
import itertools
import numbers
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_capsule_poe import registry
from keras_capsule_poe.errors import BadUse, CapspoeError, Diverged, TrainingWarning, meant
from keras_capsule_poe.former_names import current_metrics
from keras_capsule_poe.io.atomic import user_path
from keras_capsule_poe.io.records import digest, has_record, read_json, write_json
from keras_capsule_poe.pretrained import (
    is_pretrained,
    pretrained_folder,
    pretrained_names,
    train,
)
from keras_capsule_poe.training.folder import RUN_FILE, RunFolder
from keras_capsule_poe.training.settings import flat

__all__ = ["results", "sweep"]
# File of a model folder with the metrics of the last `capspoe evaluate`, and that of models that
# come with the package.
KEPT, OF_PRETRAINED = "evaluation.json", "metrics.json"
# What a row has of every run; the settings among them are no others of its settings.
FACTS = ("folder", "model", "preset", "dataset", "seed", "finished", "seconds", "warnings")
_NO_RESULT = ("data_version", "checkpoint_seconds")
# Tables of images by class and by confidence, and numbers of the last epoch that say no quality.
_LEFT_OUT = ("confusion", "reliability", "epoch", "seconds")


def results(folders: str | Path | Iterable[str | Path]) -> list[dict[str, Any]]:
    """Return the settings and metrics of trained models, a flat dict for each.

    `pandas.DataFrame(results("saved_models/*"))` is a table of them.

    Args:
        folders: Path of a model folder, of the folder of a sweep or another folder of model
            folders, a pattern such as `"saved_models/*"`, the name of a model that comes with the
            package, or a list of these.

    Returns:
        List of dicts, in the order of the folders, with the keys

        - `folder`, `model`, `preset`, `dataset`, `seed`.
        - `finished`: whether the training has ended. If not, there are metrics of finished parts.
        - `seconds`: of training.
        - `warnings`: what the training complained of, or None.
        - settings that were given to any of the models, such as `encoder.dim`.
        - metrics of each part at the end of its training, such as `encoder.val_relative_error`.
          Those with `val_` are of held-out images.
        - metrics of the last `capspoe evaluate` of the model, such as `samples.prior.FID`. They are
          of test images. Tables of classes and of confidence are left out.

    Raises:
        BadUse: If a path or a pattern leads to no run. A run that cannot be read is left out, with
            a warning.

    Example:

    >>> rows = results(["mnist", "fashion_mnist"])
    >>> [(row["dataset"], row["seed"], row["samples.prior.class_coverage"]) for row in rows]
    [('mnist', 0, 10), ('fashion_mnist', 0, 9)]
    """
    found = records(folders, lambda line: warnings.warn(line, stacklevel=3))
    facts = ({name: record[name] for name in FACTS} for record in found)
    return [{**row, **each["settings"], **each["metrics"]} for row, each in zip(facts, found)]


def sweep(
    dataset: Any,
    settings: Mapping[str, Sequence[Any]],
    seeds: int = 1,
    *,
    folder: str | Path,
    seed: int = 0,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train a model with each combination of settings and each seed, as `capspoe sweep`.

    Each combination has a folder of its name, such as `encoder.dim=16,seed=0`. The same call goes
    on with an interrupted sweep, and trains no finished model again. A training that diverges does
    not end the others: a warning names it.

    Args:
        dataset: As in `train`.
        settings: Dict from the names of settings to lists of their values, such as
            `{"encoder.dim": [16, 32]}`.
        seeds: int, trainings of each combination, with the seeds `seed`, `seed + 1` and so on.
        folder: Path of the folder for the folders of the models.
        seed: int, the first seed.
        **options: Other arguments of `train`, such as `model="rbm"` or `epochs=5`.

    Returns:
        The `results` of the models.

    Raises:
        BadUse: If a setting has no values or equal ones, or `folder` holds a model. Nothing is
            trained then.
        DataError, ConfigError, RunFailed: As of `train`.

    Example:

    >>> import tempfile
    >>> options = {"model": "rbm", "limit": 60, "epochs": 1, "verbose": 0}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = sweep("digits", {"hidden": [4, 8]}, folder=folder, **options)
    >>> [(row["rbm.hidden"], row["seed"]) for row in rows]
    [(4, 0), (8, 0)]
    """
    place = sweep_folder(folder)
    found = combinations(settings, seeds, seed)
    wanted = {place / name: {**options, **values} for name, values in found.items()}
    check_different({path: _settings(**values) for path, values in wanted.items()})
    for path, values in wanted.items():
        try:
            train(dataset, folder=path, **values)
        except Diverged as error:
            warnings.warn(f"{path.name}: {error}", TrainingWarning, stacklevel=2)
    return results(list(wanted))


def _settings(
    model=registry.DEFAULT, preset=None, recipe=None, epochs=None, batch_size=None, verbose=None,
    callbacks=None, data_dir=None, manual_dir=None, store=None, groups=None, **values,
):  # fmt: skip
    """Return the `Settings` of these arguments of `train`."""
    kind = model.SETTINGS if isinstance(model, type) else registry.settings_class(model)
    found = kind(preset or recipe, **values)
    found.set_all(epochs=epochs, batch_size=batch_size)
    return found


def check_different(wanted):
    """Raise `BadUse` if two of the `Settings`, a dict by folder, are equal."""
    places = {}
    for path, settings in wanted.items():
        values = {name: str(value) for name, value in flat(settings.to_dict()).items()}
        first = places.setdefault(tuple(sorted(values.items())), path)
        if first is not path:
            raise BadUse(
                f"Trainings must have different settings. Received: {first.name} and {path.name}, "
                "which are the same."
            )


def combinations(settings, seeds=1, seed=0):
    """Return the settings of each training of a sweep, dicts by the name of its folder."""
    from keras_capsule_poe.core.arguments import LARGEST_SEED, whole_number

    whole_number("seeds", seeds)
    last = whole_number("seed", seed, 0, LARGEST_SEED) + seeds - 1
    whole_number("seed", last, 0, LARGEST_SEED)
    if taken := [name for name in ("seed", "dataset", "folder") if name in settings]:
        raise BadUse(
            "`settings` must be settings of the model; `seeds` is the number of seeds. "
            f"Received: {taken[0]}"
        )
    for name, values in settings.items():
        is_list = isinstance(values, Sequence) and not isinstance(values, str)
        texts = [str(value) for value in values] if is_list else []
        if not texts or "" in texts or len(set(texts)) < len(texts):
            raise BadUse(
                f"`settings` must have a list of different values of {name}. Received: {values!r}"
            )
    found = {}
    every = {**settings, "seed": range(seed, seed + seeds)}
    for values in itertools.product(*every.values()):
        pairs = dict(zip(every, values))
        # A name must be that of one folder, without patterns.
        name = ",".join(f"{key}={value}" for key, value in pairs.items())
        name = re.sub(r"[/\\*?\[\]]", "-", name)
        if name in found or len(name) > 200:
            raise BadUse(f"`settings` must give different short names. Received: {name:.80}")
        found[name] = pairs
    return found


def sweep_folder(folder):
    """Return the path of a folder for the runs of a sweep; raise if it holds a run itself."""
    place = user_path(folder)
    if has_record(place / RUN_FILE):
        raise BadUse(
            f"`folder` must be a folder for several models. Received: {place}, which holds one."
        )
    return place


def run_folders(folders):
    """Return the folders of runs at a path, a pattern, a name, or a list of these."""
    several = isinstance(folders, Iterable) and not isinstance(folders, str)
    given = list(folders) if several else [folders]
    found = []
    for each in given:
        if not isinstance(each, (str, os.PathLike)) or not str(each):
            raise BadUse(f"`folders` must be paths, patterns or names. Received: {each!r:.80}")
        path = pretrained_folder(each) or user_path(each)
        paths = [path] if path.exists() else map(Path, glob.glob(str(path)))
        runs = [run for path in sorted(paths, key=_natural) for run in _runs_at(path)]
        if not runs:
            known = pretrained_names()
            raise BadUse(
                "`folders` must lead to model folders, or be names of pretrained models: "
                f"{', '.join(known)}. Received: {each}, without a run.{meant(each, known)}"
            )
        found += runs
    return list(dict.fromkeys(found))


def _runs_at(path):
    """Return the path if it is a run, or the runs in its folder."""
    if has_record(path / RUN_FILE) or not path.is_dir():
        return [path] if path.is_dir() else []
    return [each for each in sorted(path.iterdir(), key=_natural) if has_record(each / RUN_FILE)]


def _natural(path):
    """Return a key that sorts numbers in names as numbers."""
    return [(word.isdecimal(), word.zfill(20)) for word in re.split(r"(\d+)", str(path))]


def records(folders, left_out=None):
    """Return dicts of runs with the `FACTS`, the `name` and dicts of `settings`, `metrics`
    and of those of `training`.

    `left_out` is called with a line of text for a run that cannot be read; None: raise.
    """
    found = []
    for folder in run_folders(folders):
        try:
            found.append(_record(folder))
        except CapspoeError as error:
            if left_out is None:
                raise
            left_out(f"{folder} is left out: {error}")
    given = dict.fromkeys(name for _, _, names in found for name in names)
    names = _names([record["folder"] for record, _, _ in found])
    for (record, values, _), name in zip(found, names):
        record["settings"] = {key: values[key] for key in given if key in values}
        record["name"] = name
    return [record for record, _, _ in found]


def _record(folder):
    """Return the record of a run, all of its settings, and the names of those that were given."""
    run = RunFolder(folder)
    saved = run.readable()["config"]
    kind = registry.settings_class(saved["model"])
    settings = kind.from_dict(saved)
    usual = kind(settings.preset, dataset=settings.dataset)
    usual.suit()
    values, default = flat(settings.to_dict()), flat(usual.to_dict())
    given = [name for name, value in values.items() if default.get(name) != value]
    done = {stage: found for stage in settings.stages if (found := run.done(stage))}
    metrics = {stage: each["metrics"] for stage, each in done.items()}
    training = flat_metrics(metrics)
    complaints = [
        f"{s}: {line}" for s, each in metrics.items() for line in each.get("complaints", ())
    ]
    record = {
        "folder": str(folder),
        **{name: values[name] for name in FACTS if name in values},
        "finished": len(done) == len(settings.stages),
        "seconds": sum(each["seconds"] for each in done.values()),
        "warnings": "; ".join(complaints) or None,
        "training": training,
        "metrics": {**training, **flat_metrics(kept(folder))},
    }
    known = (*FACTS, *_NO_RESULT)
    return record, values, [name for name in given if name not in known]


def flat_metrics(values):
    """Return the numbers in nested dicts of metrics by name, such as `samples.prior.FID`."""
    return dict(_numbers(values))


def _numbers(values, prefix=""):
    """Yield names and values of the numbers in nested dicts."""
    for name, value in values.items():
        # The accuracy of "accuracy" needs no second word.
        place = prefix.removesuffix(".") if prefix == f"{name}." else f"{prefix}{name}"
        if isinstance(value, Mapping) and name not in _LEFT_OUT:
            yield from _numbers(value, f"{place}.")
        elif value is None or isinstance(value, numbers.Real) and not isinstance(value, bool):
            if name not in _LEFT_OUT:
                yield place, value


def _names(folders):
    """Return short names of folders that differ."""
    paths, names = [Path(folder) for folder in folders], [Path(folder).name for folder in folders]
    return [
        name if names.count(name) == 1 else os.path.join(path.parent.name, name)
        for path, name in zip(paths, names)
    ]


def keep(folder, metrics, options=None):
    """Keep the metrics of a model in its folder, with the options of their measurement."""
    if not is_pretrained(folder):
        model = digest(folder / "model.keras")
        # The metrics were shown, and a folder that cannot be written to is no error.
        with contextlib.suppress(OSError, CapspoeError):
            write_json(folder / KEPT, {"model": model, "options": options, "metrics": metrics})


def kept(folder, options=None):
    """Return the metrics that were kept of the model of a folder, or {}.

    With `options`, only those that were measured with them.
    """
    folder = Path(folder)
    if is_pretrained(folder):
        found = {} if options else read_json(folder / OF_PRETRAINED).get("rounded", {})
        return current_metrics(found)
    path = folder / KEPT
    if not path.exists() or not (folder / "model.keras").exists():
        return {}
    found = read_json(path)
    if options is not None and found.get("options") != options:
        return {}
    is_own = found.get("model") == digest(folder / "model.keras")
    return current_metrics(found["metrics"]) if is_own else {}
