"""RBM 784-500 on stochastically binarised MNIST: test log-likelihood by annealing, and seconds.

Persistent contrastive divergence of the centred machine, its rate falling along a line, through
`families.rbm` as `capspoe train --model rbm` has it; then log Z by 100 chains of 14,500
temperatures from both sides. Rates are chosen on the last 10,000 training images, which
--held-out trains without and scores instead of the test images.

Usage: python benchmarks/research/rbm_likelihood.py [--minutes 5 20] [--rate R ...] [--held-out]
           [--chains N] [--cd-steps K] [--hidden E] [--temperatures K] [--json FILE]
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras

from keras_capsule_poe import ImageBoltzmannMachine
from keras_capsule_poe.data import ImageData, ImageSet, load_images
from keras_capsule_poe.evaluation.likelihood import likelihood
from keras_capsule_poe.families import get
from keras_capsule_poe.models.boltzmann import training as build
from keras_capsule_poe.training import RunConfig

# Minutes of training, and the nats that test images should have after them.
BARS = {5.0: -95.0, 20.0: -90.0}
COLUMNS = (
    "minutes rate momentum chains epochs seconds nats nats_error nats_forward forward reverse "
    "width seconds_annealing"
).split()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, nargs="+", default=list(BARS))
    parser.add_argument("--rate", type=float, nargs="+", default=[0.05])
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--hidden", type=int, default=500)
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--cd-steps", type=int, default=1)
    parser.add_argument("--temperatures", type=int, default=14_500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def images(held_out):
    """`ImageData` whose test images are scored."""
    data = load_images("mnist")
    if not held_out:
        return data
    train = data.train.images
    return ImageData(ImageSet(train[:-10_000]), ImageSet(train[-10_000:]))


class Timed(keras.callbacks.Callback):
    """Lets the rate fall to a hundredth along a line of time, and stops at its end."""

    def __init__(self, minutes, rate):
        super().__init__()
        self.seconds, self.rate = 60 * minutes, rate

    def on_train_begin(self, logs=None):
        self.began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        left = 1 - (time.perf_counter() - self.began) / self.seconds
        self.model.optimizer.learning_rate.assign(self.rate * max(left, 0.01))
        self.model.stop_training = left <= 0


def trained(args, minutes, rate, data):
    """A machine that was trained for so many minutes, as a whole model, and a row of figures."""
    config = RunConfig(get("rbm"), "pixels", seed=args.seed)
    for name in ("hidden", "chains", "batch_size", "cd_steps"):
        config.set(f"rbm.{name}", getattr(args, name))
    keras.utils.set_random_seed(args.seed)
    v = data.train.images.reshape(len(data.train), -1).astype("float32") / 255
    model = build.build_model(config, v.shape[1])
    model.adapt(v[:20_000])
    optimizer = keras.optimizers.SGD(rate, momentum=args.momentum)
    # Many steps a call: what comes between two of them takes as long as they do.
    model.compile(optimizer, jit_compile=False, steps_per_execution=50)
    begun = time.perf_counter()
    history = model.fit(
        v,
        batch_size=args.batch_size,
        epochs=1_000_000,
        verbose=0,
        callbacks=[Timed(minutes, rate)],
    )
    seconds = time.perf_counter() - begun
    whole = ImageBoltzmannMachine(
        model.machine, data.train.image_shape, "stochastic", persistent_chains=args.chains
    )
    whole.build()
    whole.chain_states.assign(model.fantasies(args.chains, 1000, args.seed))
    row = {"minutes": minutes, "rate": rate, "momentum": args.momentum, "chains": args.chains}
    return whole, row | {"epochs": len(history.epoch), "seconds": seconds}


def main():
    args = arguments()
    data, rows = images(args.held_out), []
    for minutes in args.minutes:
        for rate in args.rate:
            model, row = trained(args, minutes, rate, data)
            found = likelihood(model, data, temperatures=args.temperatures, seed=args.seed)
            found["seconds_annealing"] = found.pop("seconds")
            rows.append(found | row)
            print("  ".join(f"{name} {rows[-1][name]:.4g}" for name in COLUMNS), flush=True)
            bar = BARS.get(minutes)
            if bar is not None and not args.held_out:
                met = found["nats"] >= bar and abs(found["width"]) <= 1
                print(f"bar {bar:g} nats, width 1: {'met' if met else 'MISSED'}", flush=True)
    best = max(rows, key=lambda row: row["nats"])
    if len(args.rate) > 1:
        print(f"best rate {best['rate']:g}")
    assert math.isfinite(best["nats"]), "it diverged"
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
