"""Steps of contrastive divergence by `fit`, on whatever backend and device Keras has.

The capsule encoder, the decoder and a restricted Boltzmann machine, of the sizes that MNIST has in
the recipes, on random numbers; the median of some epochs after the first, which compiles. Before
them what a large matrix product of the same backend does.

Usage: KERAS_BACKEND=jax python benchmarks/research/contrastive_steps.py [--batch 128] [--steps 20]
           [--epochs 5] [--models NAME ...]
"""

import argparse
import time

import keras
import numpy as np
from _shares import table
from keras import ops

from keras_capsule_poe import (
    CapsuleDecoder,
    CapsuleEncoder,
    CapsulePoE,
    HarmoniumModel,
    RestrictedBoltzmannMachine,
)
from keras_capsule_poe.core.numerics import compiled

COLUMNS = {"model": "", "ms a step": ".2f", "images/s": ",.0f", "first epoch, s": ".1f"}


def uniform(*shape, most=0.3):
    return np.random.default_rng(0).uniform(0, most, size=shape).astype("float32")


def encoder(images):
    return CapsuleEncoder(CapsulePoE(20, 16)), (uniform(images, 576, 8),)


def decoder(images):
    data = uniform(images, 20, 16), uniform(images, 576, 8)
    return CapsuleDecoder(CapsulePoE(576, 8)), data


def machine(images):
    model = HarmoniumModel(RestrictedBoltzmannMachine(500), algorithm="pcd", persistent_chains=100)
    return model, (uniform(images, 784, most=1),)


MODELS = {"encoder": encoder, "decoder": decoder, "machine": machine}


class Clock(keras.callbacks.Callback):
    """Seconds of each epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self._begun = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        # Whatever is left to compute is waited for.
        np.asarray(self.model.trainable_variables[0].value)
        self.seconds = [*getattr(self, "seconds", []), time.perf_counter() - self._begun]


def measured(name, batch, steps, epochs):
    """A row of `COLUMNS`."""
    model, data = MODELS[name](batch * steps)
    # XLA makes a processor slower here, and is all that Jax has.
    is_compiled = "auto" if keras.backend.backend() == "jax" else False
    rate = keras.optimizers.SGD(1e-3, momentum=0.5)
    model.compile(rate, jit_compile=is_compiled)
    clock = Clock()
    model.fit(*data, batch_size=batch, epochs=epochs + 1, verbose=0, callbacks=[clock])
    first, *others = clock.seconds
    seconds = float(np.median(others)) / steps
    return name, 1e3 * seconds, batch / seconds, first


def product_rate(size=4096, times=5):
    """Operations per second of a float32 product."""
    x = ops.convert_to_tensor(uniform(size, size))
    product = compiled(lambda x: ops.matmul(x, x))
    best = np.inf
    for _ in range(times + 1):
        begun = time.perf_counter()
        np.asarray(product(x)[0, 0])
        best = min(best, time.perf_counter() - begun)
    return 2 * size**3 / best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20, help="an epoch")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--product", type=int, default=4096, help="rows of the large product")
    args = parser.parse_args()
    rate = product_rate(args.product)
    print(
        f"{keras.backend.backend()}, a product of {args.product:,} rows: {rate / 1e9:,.0f} GFLOP/s"
    )
    rows = [measured(name, args.batch, args.steps, args.epochs) for name in args.models]
    print(table(COLUMNS, rows))


if __name__ == "__main__":
    main()
