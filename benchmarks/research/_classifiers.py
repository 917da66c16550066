"""Classifiers of the family `capsnet` for comparisons: trained, judged, and kept.

Each is trained in a process of its own, so that its memory is its own, in a folder of its own,
where a training that was stopped goes on. What was measured is kept in `rows.json` of the
comparison's folder, with all settings: with others it is measured anew.
"""

import argparse
import ast
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
import numpy as np

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.accuracy import wilson_interval
from keras_capsule_poe.evaluation.mcnemar import mcnemar
from keras_capsule_poe.families import get
from keras_capsule_poe.families.capsnet import build
from keras_capsule_poe.families.capsnet.control import trained
from keras_capsule_poe.functions.winners import are_longest
from keras_capsule_poe.training import Reporter, RunConfig, train

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


def pairs(texts):
    """Settings by name, of texts SETTING=VALUE; without a section, it is `capsnet`.

    Examples:

    >>> pairs(["filters=8", "capsnet.decoder=none", "held_out=40", "capsnet.epochs=None"])
    {'capsnet.filters': 8, 'capsnet.decoder': 'none', 'held_out': 40, 'capsnet.epochs': None}
    """
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        own = "." in name or hasattr(RunConfig(get("capsnet")).settings, name)
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            pass
        found[name if own else f"capsnet.{name}"] = value
    return found


def config_of(args, dataset, recipe, settings, seed):
    """The `RunConfig` of a row; what the command line sets comes last.

    It is not checked: that would build a network, and what is forked afterwards would hang.
    """
    config = RunConfig(get("capsnet"), recipe, dataset=dataset, seed=seed)
    config.update({**settings, **pairs(args.set)})
    for name, value in (("capsnet.epochs", args.epochs), ("limit", args.limit)):
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
    """

    def __init__(self, folder, measures=True):
        self.folder, self._measures = folder, measures
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "rows.json"
        self.rows = json.loads(self._path.read_text()) if self._path.exists() else {}

    def figures(self, name, config, judge, *args):
        """The figures of a row: kept ones, or those of a training; or None.

        Args:
            name: str.
            config: `RunConfig`.
            judge: Function of a trained model, its `ImageData` and `args` to a dict of figures.
            *args: What else `judge` takes, and what its figures depend on: plain values.
        """
        settings = json.loads(json.dumps([config.to_dict(), args], default=str))
        kept = self.rows.get(name, {}).get(str(config.seed))
        if kept and kept["settings"] == settings:
            return kept
        if not self._measures:
            return None
        # Settings that are not those of the network must not give it another folder.
        key = hashlib.sha256(json.dumps(settings[0]).encode()).hexdigest()[:8]
        words = "".join(letter if letter.isalnum() else "-" for letter in name)
        run = self.folder / f"{words}-{config.seed}-{key}"
        found = children.in_child(_measured, config, run, judge, args)
        # Another comparison may have written to it meanwhile.
        if self._path.exists():
            self.rows = json.loads(self._path.read_text())
        self.rows.setdefault(name, {})[str(config.seed)] = {**found, "settings": settings}
        self._path.write_text(json.dumps(self.rows, indent=1) + "\n")
        shown = {k: v for k, v in found.items() if not isinstance(v, (dict, str))}
        print(f"{name}, seed {config.seed}: {shown}", flush=True)
        return self.rows[name][str(config.seed)]


def _measured(config, folder, judge, args):
    """Trains a network, in a process of its own, and judges it."""
    kept = {}

    def training():
        reporter = Reporter(write=lambda line: print(f"  {line}", flush=True))
        kept["run"] = train(config, folder, reporter=reporter, stage="capsnet")

    begun = time.perf_counter()
    extra_mb = measure.extra_peak_mb(training)
    minutes = (time.perf_counter() - begun) / 60
    history = json.loads((folder / "capsnet" / "history.json").read_text())
    model, data = final_model(config, folder), kept["run"].data
    return {
        "held_out": history[-1]["held_out_accuracy"],
        "epochs": len(history),
        # A training that went on where it was stopped took longer than this process.
        "minutes": max(minutes, sum(epoch["seconds"] for epoch in history) / 60),
        "parameters": trained(model),
        "extra_mb": extra_mb,
        **judge(model, data, *args),
    }


def final_model(config, folder):
    """The model after its last epoch, in float32, as it is exported."""
    import keras

    weights = keras.models.load_model(folder / "capsnet" / "model.keras", compile=False)
    model = build.build_model(config, weights.image_shape, dtype="float32")
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


def shares(name, right):
    """A share of images and which they are, as figures of a row.

    Examples:

    >>> shares("test", np.array([True, False, False, True]))
    {'test': 0.5, 'test_images': 4, 'test_right': '90'}
    """
    packed = np.packbits(right).tobytes().hex()
    return {name: float(np.mean(right)), f"{name}_images": len(right), f"{name}_right": packed}


def unpacked(figures, name):
    """Boolean (N,), of what `shares` gave.

    Examples:

    >>> unpacked(shares("test", np.array([True, False, True])), "test").tolist()
    [True, False, True]
    """
    bits = np.frombuffer(bytes.fromhex(figures[f"{name}_right"]), np.uint8)
    return np.unpackbits(bits)[: figures[f"{name}_images"]].astype(bool)


def share(figures, name):
    """A share with its 95% interval (Wilson), in percent, as text.

    Examples:

    >>> share({"test": 0.5, "test_images": 100}, "test")
    '50.00 (40.38 to 59.62)'
    """
    n = figures[f"{name}_images"]
    low, high = wilson_interval(round(figures[name] * n), n)
    return f"{100 * figures[name]:.2f} ({100 * low:.2f} to {100 * high:.2f})"


def table(columns, rows):
    """Markdown of rows of cells; numbers by their columns' formats.

    Examples:

    >>> print(table({"model": "", "minutes": ".1f"}, [("capsules", 2.25)]))
    | model | minutes |
    |---|---|
    | capsules | 2.2 |
    """
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = ("-" if x is None else format(x, how) for x, how in zip(row, columns.values()))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def comparison(figures, name, first="capsules"):
    """Lines of McNemar's test of the first model against each other one, seed by seed.

    Args:
        figures: dict of models of dicts by seed of figures.
        name: str, of which share.
        first: str, a model.
    """
    lines = []
    for other in figures:
        for seed in sorted(set(figures.get(first, {})) & set(figures[other])):
            if other == first:
                continue
            both = (unpacked(figures[model][seed], name) for model in (first, other))
            found = mcnemar(*both)
            lines.append(
                f"{name}, seed {seed}: {first} alone right {found['only_this_right']}, {other} "
                f"alone right {found['only_other_right']}, p = {found['p']:.2g} (McNemar)"
            )
    return "\n".join(lines)


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
    rows, figures = Rows(args.folder, not args.table), {}
    for seed in args.seeds:
        for model in args.models:
            config = config_of(args, dataset, recipe, {**settings, **MODELS[model]}, seed)
            found = rows.figures(model, config, judge, *judged)
            if found:
                figures.setdefault(model, {})[seed] = found
    percent = {f"{name} %": "" for name in names}
    columns = {"model": "", "seed": "", "parameters": ",", "epochs": "", "held out %": ".2f"}
    lines = [
        (model, seed, found["parameters"], found["epochs"], 100 * found["held_out"],
         *(share(found, name) for name in names), found["minutes"])
        for model, seeds in figures.items() for seed, found in seeds.items()
    ]  # fmt: skip
    print("\n" + table({**columns, **percent, "minutes": ".1f"}, lines) + "\n")
    means = [
        (model, len(seeds), *(_spread([found[n] for found in seeds.values()]) for n in names))
        for model, seeds in figures.items()
    ]
    print(table({"model": "", "seeds": "", **percent}, means) + "\n")
    for name in names:
        print(comparison(figures, name))
    return figures


def _spread(values):
    deviation = f" ± {100 * np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.2f}{deviation}"
