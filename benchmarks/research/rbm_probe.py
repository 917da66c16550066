"""Linear probe on p(h = 1 | v) of a restricted Boltzmann machine 784-1024 on MNIST.

The machine is trained without labels on pixel values, by contrastive divergence; then
multinomial logistic regression on its hidden neurons. Settings of both are chosen on the last
10,000 training images, which the search trains without. --test trains the chosen ones on all
60,000 training images and scores the test images, once.

Usage: python benchmarks/research/rbm_probe.py [--test] [--epochs N ...] [--rate R ...]
           [--algorithm cd pcd] [--weight-decay D ...] [--binarize stochastic|none ...]
           [--inverse-penalty C ...] [--hidden E] [--json FILE]
"""

import argparse
import itertools
import json
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from keras_capsule_poe import HarmoniumModel, RestrictedBoltzmannMachine
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.mapping import map_batches, to_pixels

HELD_OUT = 10_000
# Published for yell's RBM of the same size, and the bar.
PUBLISHED, BAR = 0.9817, 0.98


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--algorithm", nargs="+", default=["cd"])
    parser.add_argument("--epochs", type=int, nargs="+", default=[50])
    parser.add_argument("--rate", type=float, nargs="+", default=[0.05])
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, nargs="+", default=[2e-4])
    parser.add_argument("--binarize", nargs="+", default=["none"])
    parser.add_argument("--hidden-start", type=float, nargs="+", default=[-2.0])
    parser.add_argument("--centering", type=int, nargs="+", default=[0])
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--inverse-penalty", type=float, nargs="+", default=[1.0])
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def train(v, args, algorithm, epochs, rate, weight_decay, binarize, hidden_start, centering):
    """A machine trained on (N, D) pixels in [0, 1]."""
    keras.utils.set_random_seed(args.seed)
    machine = RestrictedBoltzmannMachine(args.hidden, centering=bool(centering))
    binarize = None if binarize == "none" else binarize
    options = {"binarize": binarize, "weight_decay": weight_decay, "seed": args.seed}
    model = HarmoniumModel(machine, algorithm, persistent_chains=args.batch_size, **options)
    model.adapt(v)
    machine.hidden_bias.assign_add(np.full(args.hidden, hidden_start))
    steps = epochs * (len(v) // args.batch_size)
    falling = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.01 * rate)
    optimizer = keras.optimizers.SGD(falling, momentum=args.momentum)
    model.compile(optimizer, jit_compile=False, steps_per_execution=50)
    history = model.fit(v, batch_size=args.batch_size, epochs=epochs, verbose=0)
    return machine, history.history["loss"][-1]


def probe(x, y, inverse_penalty, max_iter):
    """Logistic regression on probabilities x (N, E)."""
    model = LogisticRegression(C=inverse_penalty, max_iter=max_iter)
    with warnings.catch_warnings():
        # More steps change the last digits of the accuracy.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def main():
    args = arguments()
    data, rows = load_images("mnist"), []
    train_set = data.train if args.test else data.train.head(len(data.train) - HELD_OUT)
    scored = data.test if args.test else data.train
    images, labels = scored.images[-HELD_OUT:], scored.labels[-HELD_OUT:]
    v, w = (to_pixels(x).reshape(len(x), -1) for x in (train_set.images, images))
    settings = (
        args.algorithm, args.epochs, args.rate, args.weight_decay, args.binarize,
        args.hidden_start, args.centering,
    )  # fmt: skip
    names = "algorithm epochs rate weight_decay binarize hidden_start centering".split()
    trials = list(itertools.product(*settings))
    if args.test and len(trials) * len(args.inverse_penalty) > 1:
        raise SystemExit("--test takes one value of each: the test images are scored once.")
    for trial in trials:
        begun = time.perf_counter()
        machine, loss = train(v, args, *trial)
        seconds = time.perf_counter() - begun
        x, held_out = (map_batches(machine, rows_of, 1000) for rows_of in (v, w))
        for penalty in args.inverse_penalty:
            begun = time.perf_counter()
            found = probe(x, train_set.labels, penalty, args.max_iter)
            rows.append(
                dict(zip(names, trial))
                | {"inverse_penalty": penalty, "accuracy": found.score(held_out, labels)}
                | {"loss": loss, "mean_h": float(x.mean()), "seconds_machine": seconds}
                | {"seconds_probe": time.perf_counter() - begun}
            )
            print("  ".join(f"{key} {_text(value)}" for key, value in rows[-1].items()), flush=True)
    if args.test:
        is_met = rows[0]["accuracy"] >= BAR
        print(f"bar {BAR}, published {PUBLISHED}: {'met' if is_met else 'MISSED'}")
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def _text(value):
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
