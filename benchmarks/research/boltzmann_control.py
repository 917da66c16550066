"""The baseline of equal size: which settings of a Gaussian-Bernoulli Boltzmann machine draw best.

Each machine has as many hidden neurons as the model has code numbers, is fitted to features of
12,000 training images and judged on 5,000 other training images, as `capspoe evaluate` judges
samples on the test images, which nothing here looks at. A row for each of TRIALS, and below the
Gaussian baselines of the same features.

With --components the machines have the leading principal components as visible neurons. As all
features have one noise, and the first weights no direction, a machine that is turned is the same
machine: all that is left out is what the last components would add. A trial takes a tenth.

Usage: python benchmarks/research/boltzmann_control.py MODEL_DIR [--only NAME=VALUE ...]
           [--components K] [--json FILE]
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from sklearn.decomposition import PCA

from keras_capsule_poe.cli.options import load_model, load_run_data
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.baselines import KINDS, BoltzmannBaseline, FeatureBaseline
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.scores import scores_of

FITTED, HELD_OUT = 12_000, 5_000
NOISE = 16.0  # the baseline's default
COLUMNS = ("FID", "confident", "coverage", "KID", "seconds_fit", "seconds_draw")
# Each but the first differs from the defaults of the baseline in what it names.
TRIALS = (
    {},
    *({"noise": noise} for noise in (1.0, 4.0, 64.0)),
    *({"learning_rate": rate} for rate in (0.002, 0.005, 0.05)),
    {"initial_stddev": 0.1},
    {"steps": 5},
    {"chains": 500},
    {"gibbs_steps": 1000},
    *({"algorithm": "cd", "noise": noise} for noise in (1.0, 4.0, 16.0, 64.0)),
    {"algorithm": "cd", "steps": 10},
    {"epochs": 30},
)


class Turned:
    """A baseline of the leading principal components of features."""

    def __init__(self, components, **settings):
        self.axes, self.settings = (
            PCA(components, svd_solver="randomized", random_state=0),
            settings,
        )

    def fit(self, features):
        scores = self.axes.fit_transform(features)
        noise = self.settings.pop("noise", NOISE)
        # In the unit of all features, as without the turn.
        share = features.var(axis=0).mean() / scores.var(axis=0).mean()
        self.baseline = BoltzmannBaseline(noise=noise * float(share), **self.settings).fit(scores)
        return self

    def sample(self, n, seed):
        return self.axes.inverse_transform(self.baseline.sample(n, seed))


def judged(baseline, model, judge, real, features, seed=0):
    """A row of figures of a baseline."""
    begun = time.perf_counter()
    baseline.fit(features.reshape(len(features), -1))
    fitted = time.perf_counter()
    drawn = baseline.sample(HELD_OUT, seed)
    seconds = {"seconds_fit": fitted - begun, "seconds_draw": time.perf_counter() - fitted}
    if not np.isfinite(drawn).all():
        return seconds
    images = map_batches(model.from_features, drawn.reshape(-1, *features.shape[1:]))
    return {**scores_of(judge(images), real), **seconds}


def _value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def show(name, row, width=64):
    cells = "  ".join(f"{row.get(column, float('nan')):>10.4g}" for column in COLUMNS)
    print(f"{name:<{width}}{cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--only", nargs="+", action="append", metavar="NAME=VALUE")
    parser.add_argument("--components", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    model, data = load_model(args.model_dir), load_run_data(args.model_dir, None, None)
    order = np.random.default_rng(0).permutation(len(data.train))
    rows, held_out = order[:FITTED], order[FITTED : FITTED + HELD_OUT]
    features = map_batches(model.to_features, data.train.images[rows])
    judge = evaluation_classifier(data.train)
    real, _ = judge(data.train.images[held_out])
    trials, found = TRIALS, []
    if args.only:
        trials = [
            {name: _value(value) for name, value in (pair.split("=") for pair in trial)}
            for trial in args.only
        ]
    print(" " * 64 + "  ".join(f"{column[:10]:>10}" for column in COLUMNS))
    for settings in trials:
        settings_of = {"neurons": model.capsules * model.dim, **settings}
        baseline = BoltzmannBaseline(**settings_of)
        if args.components:
            baseline = Turned(args.components, **settings_of)
        row = judged(baseline, model, judge, real, features)
        name = " ".join(f"{key}={value}" for key, value in settings.items()) or "defaults"
        found.append({"settings": settings, **row})
        show(name, row)
    for kind in () if args.only else KINDS:
        row = judged(FeatureBaseline(kind), model, judge, real, features)
        found.append({"settings": kind, **row})
        show(kind, row)
    if args.json:
        args.json.write_text(json.dumps({"rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
