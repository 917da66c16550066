"""Classifiers for comparisons, of the family `capsnet` if not said: trained, judged, and kept.

Each is trained in a process of its own, so that its memory is its own, in a folder of its own,
where a training that was stopped goes on. What was measured is kept in `rows.json` of the
comparison's folder, with all settings: with others it is measured anew.
"""

import argparse
import ast
import functools
import hashlib
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import _children as children
import _measure as measure
from _kept import is_of
from _shares import comparison, share, spread, table

from keras_capsule_poe import registry
from keras_capsule_poe.core.labels import are_longest
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.models.base.networks import parameters
from keras_capsule_poe.training import Reporter, train

FAMILIES = ("capsnet", "matrix-capsules")
# What is compared: settings beside those of a recipe.
MODELS = {
    "capsules": {},
    "uniform": {"capsnet.coefficients": "uniform"},
    "cnn": {"capsnet.network": "cnn"},
}


def parser(description, models=MODELS):
    """The command line of every comparison."""
    children.exit_on_sigterm()
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where rows and trainings are kept")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--limit", type=int, help="use the first training images only")
    parser.add_argument("--set", nargs="+", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    if models:
        parser.add_argument("--models", nargs="+", choices=models, default=list(models))
    return parser


def pairs(texts, family="capsnet"):
    """Settings by name, of texts SETTING=VALUE; without a section, it is the family's.

    Examples:

    >>> pairs(["filters=8", "capsnet.decoder=none", "held_out=40", "capsnet.epochs=None"])
    {'capsnet.filters': 8, 'capsnet.decoder': 'none', 'held_out': 40, 'capsnet.epochs': None}
    """
    found, settings = {}, registry.settings(family)
    for text in texts:
        name, _, value = text.partition("=")
        own = "." in name or name in type(settings).model_fields
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            pass
        found[name if own else f"{settings.stage}.{name}"] = value
    return found


def config_of(args, dataset, recipe, settings, seed, family="capsnet"):
    """The `Settings` of a row; what the command line sets comes last. They are not checked."""
    config = registry.settings(family, recipe, dataset=dataset, seed=seed)
    config.update({**settings, **pairs(args.set, family)})
    for name, value in ((f"{config.stage}.epochs", args.epochs), ("limit", args.limit)):
        if value is not None:
            config.set(name, value)
    # A setting of one recipe that means nothing in another is no mistake here.
    config.given.clear()
    return config


class Rows:
    """What was measured, by name and seed, kept in `rows.json` of a folder.

    Args:
        folder: Path.
        measures: bool; if not, only what is there is given.
        load: Function of `Settings` to the `ImageData` that it is trained on; None: those that
            it names.
    """

    def __init__(self, folder, measures=True, load=None):
        self.folder, self._measures, self._load = folder, measures, load
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "rows.json"
        self.rows = json.loads(self._path.read_text()) if self._path.exists() else {}

    def figures(self, name, config, judge, *args):
        """The figures of a row: kept ones, or those of a training; or None.

        Args:
            name: str.
            config: `Settings`.
            judge: Function of a trained model, its `ImageData` and `args` to a dict of figures.
            *args: What else `judge` takes, and what its figures depend on: plain values.
        """
        settings = json.loads(json.dumps([config.to_dict(), args], default=str))
        kept = self.rows.get(name, {}).get(str(config.seed))
        if kept and kept["settings"][1:] == settings[1:] and is_of(kept["settings"][0], config):
            return kept
        if not self._measures:
            return None
        # Settings that are not those of the network must not give it another folder.
        key = hashlib.sha256(json.dumps(settings[0]).encode()).hexdigest()[:8]
        words = "".join(letter if letter.isalnum() else "-" for letter in name)
        run = self.folder / f"{words}-{config.seed}-{key}"
        found = children.in_child(_measured, config, run, judge, args, self._load)
        # Another comparison may have written to it meanwhile.
        if self._path.exists():
            self.rows = json.loads(self._path.read_text())
        self.rows.setdefault(name, {})[str(config.seed)] = {**found, "settings": settings}
        self._path.write_text(json.dumps(self.rows, indent=1) + "\n")
        shown = {k: v for k, v in found.items() if not isinstance(v, (dict, str))}
        print(f"{name}, seed {config.seed}: {shown}", flush=True)
        return self.rows[name][str(config.seed)]


def _measured(config, folder, judge, args, load=None):
    """Trains a network, in a process of its own, and judges it."""
    kept, stage = {}, config.stage
    load_data = load and functools.partial(load, config)

    def training():
        reporter = Reporter(write=lambda line: print(f"  {line}", flush=True))
        kept["run"] = train(registry.untrained(config), folder, load_data, reporter, stage)

    begun = time.perf_counter()
    extra_mb = measure.extra_peak_mb(training)
    minutes = (time.perf_counter() - begun) / 60
    history = json.loads((folder / stage / "history.json").read_text())
    model, data = final_model(config, folder), kept["run"].data
    return {
        "held_out": history[-1]["val_accuracy"],
        "epochs": len(history),
        # A training that went on where it was stopped took longer than this process.
        "minutes": max(minutes, sum(epoch["seconds"] for epoch in history) / 60),
        "parameters": parameters(model),
        "extra_mb": extra_mb,
        **judge(model, data, *args),
    }


def final_model(config, folder):
    """The model after its last epoch, in float32, as it is exported."""
    import keras

    path = folder / config.stage / "model.keras"
    weights = keras.models.load_model(path, compile=False)
    kind = registry.model_class(config.MODEL)
    model = kind.of_shape(config, weights.image_shape, dtype="float32")
    model.set_weights(weights.get_weights())
    return model


def named(model, images):
    """Which labels of images are named: boolean, of their shape."""

    def probabilities(batch):
        return model.classify(batch)["probabilities"]

    return are_longest(map_batches(probabilities, images.images), images.labels)


def rightly(model, images):
    """Which images have all their classes named: boolean (N,)."""
    found = named(model, images)
    return found.reshape(len(found), -1).all(axis=1)


def compare(args, dataset, recipe, settings, judge, names, *judged):
    """Trains and judges all models of a comparison, prints the tables; the figures.

    Args:
        args: Of `parser`.
        dataset, recipe: str.
        settings: dict, beside those of the recipe and of each of `MODELS`.
        judge: See `Rows.figures`.
        names: Shares that it gives, each with a column and a line of McNemar's test.
        *judged: Further arguments of `judge`.
    """

    def config(model, seed):
        return config_of(args, dataset, recipe, {**settings, **MODELS[model]}, seed)

    figures = every(args, Rows(args.folder, not args.table), config, judge, *judged)
    percent = {f"{name} %": "" for name in names}
    columns = {"model": "", "seed": "", "parameters": ",", "epochs": "", "held out %": ".2f"}
    lines = [
        (model, seed, found["parameters"], found["epochs"], 100 * found["held_out"],
         *(share(found, name) for name in names), found["minutes"])
        for model, seeds in figures.items() for seed, found in seeds.items()
    ]  # fmt: skip
    print("\n" + table({**columns, **percent, "minutes": ".1f"}, lines) + "\n")
    means = [
        (model, len(seeds), *(spread([found[n] for found in seeds.values()]) for n in names))
        for model, seeds in figures.items()
    ]
    print(table({"model": "", "seeds": "", **percent}, means) + "\n")
    for name in names:
        print(comparison(figures, name))
    return figures


def every(args, rows, config, judge, *judged):
    """The figures of each model and seed: a dict by model of dicts by seed.

    Args:
        args: Of `parser`.
        rows: `Rows`.
        config: Function of a model and a seed to `Settings`.
        judge, *judged: See `Rows.figures`.
    """
    figures = {}
    for seed in args.seeds:
        for model in args.models:
            found = rows.figures(model, config(model, seed), judge, *judged)
            if found:
                figures.setdefault(model, {})[seed] = found
    return figures
