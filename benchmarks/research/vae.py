"""A convolutional variational autoencoder of pixels, with the size and the time of a capsule model.

It has as many parameters as all parts of the model, and trains for as long as all stages took.
`prior` draws its codes from N(0, 1). `50 Gaussians` draws them from a mixture fitted to the codes
of training images, each with its own covariance. `4,000 Gaussians`, with one covariance, are as
many as all capsules may have together, and fitted as theirs are. Code size, weight of the
divergence and learning rate of `prior` and `50 Gaussians` were chosen with --held-out.
`4,000 Gaussians` has those of `50 Gaussians`.

Usage: python benchmarks/research/vae.py MODEL_DIR [--held-out] [--code N ...] [--beta B ...]
           [--rate R ...] [--samples N] [--steps N] [--json FILE]
"""

import argparse
import itertools
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.baselines import Budget, gaussian_divergence
from keras_capsule_poe.models.base.clusters import fit_mixture
from keras_capsule_poe.models.capsule_poe.codes import tied_mixture

FILTERS = 64, 128
# Chosen on held-out images of Fashion-MNIST after 1,500 steps, by the Fréchet distance.
CODE, BETA, RATE = 32, 0.005, 2e-3
FITTED = {"code": CODE, "beta": BETA}
SETTINGS = {
    "prior": {"code": 16, "beta": 1.0},
    "50 Gaussians": FITTED,
    "4,000 Gaussians": FITTED,
}
BATCH, COMPONENTS = 128, 50
# Twenty capsules have 200 each.
CLUSTERS = 4_000


class ConvolutionalVAE(keras.Model):
    """VAE with two convolutions and a dense layer on each side, and Bernoulli pixels.

    Args:
        image_shape: (H, W, C); H and W are multiples of four.
        hidden: Units of the dense layers.
        code: Dimensions of z.
        beta: Weight of the divergence from N(0, 1); 1 is the evidence lower bound.
    """

    def __init__(self, image_shape, hidden, code=CODE, beta=BETA, seed=0):
        super().__init__()
        height, width, channels = image_shape
        small = height // 4, width // 4, FILTERS[1]
        self.beta, self.noise = beta, keras.random.SeedGenerator(seed)
        options = {"strides": 2, "padding": "same"}
        self.recognition = keras.Sequential(
            [
                keras.Input(image_shape),
                keras.layers.Conv2D(FILTERS[0], 4, activation="relu", **options),
                keras.layers.Conv2D(FILTERS[1], 4, activation="relu", **options),
                keras.layers.Flatten(),
                keras.layers.Dense(hidden, "relu"),
                keras.layers.Dense(2 * code),
            ]
        )
        self.generator = keras.Sequential(
            [
                keras.Input((code,)),
                keras.layers.Dense(hidden, "relu"),
                keras.layers.Dense(int(np.prod(small)), "relu"),
                keras.layers.Reshape(small),
                keras.layers.Conv2DTranspose(FILTERS[0], 4, activation="relu", **options),
                keras.layers.Conv2DTranspose(channels, 4, **options),
            ]
        )
        self.built = True

    def call(self, images):
        mean, log_variance = ops.split(self.recognition(images), 2, axis=-1)
        noise = keras.random.normal(ops.shape(mean), seed=self.noise)
        z = mean + ops.exp(log_variance / 2) * noise
        return {"mean": mean, "log_variance": log_variance, "logits": self.generator(z)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Return the mean of cross-entropy plus beta times divergence, in nats per image."""
        entropy = keras.losses.binary_crossentropy(x, y_pred["logits"], from_logits=True)
        size = x.shape[1] * x.shape[2] * x.shape[3]
        divergence = gaussian_divergence(y_pred["mean"], y_pred["log_variance"])
        return size * ops.mean(entropy) + self.beta * ops.mean(divergence)

    def decode(self, codes):
        """Return images (N, H, W, C) of codes (N, E), pixels in [0, 1]."""
        return map_batches(lambda z: ops.sigmoid(self.generator(z)), codes)


def hidden_units(parameters, image_shape, code):
    """Return the units of the dense layers that give about `parameters` parameters."""
    one, two = (ConvolutionalVAE(image_shape, hidden, code).count_params() for hidden in (1, 2))
    return max(1, 1 + round((parameters - one) / (two - one)))


def fitted(images, parameters, seconds, code=CODE, beta=BETA, rate=RATE, seed=0, steps=10**6):
    """Train on images for some seconds or steps. Return the model and the budget that it used."""
    keras.utils.set_random_seed(seed)
    hidden = hidden_units(parameters, images.shape[1:], code)
    model = ConvolutionalVAE(images.shape[1:], hidden, code, beta, seed)
    model.compile(keras.optimizers.Adam(rate), jit_compile=False)
    budget = Budget(seconds, steps, rate)
    stream = batches(images, batch_size=BATCH, seed=seed, epochs=10**6)
    model.fit(stream, shuffle=False, verbose=0, callbacks=[budget])
    about = {"parameters": model.count_params(), "seconds": budget.elapsed, "steps": budget.done}
    return model, about


def draws(model, images, n, code=CODE, seed=0):
    """Return images (n, H, W, C) by name of the distributions of codes."""
    random = np.random.default_rng(seed)
    found = map_batches(model.recognition, images)
    codes = found[:, :code] + np.exp(found[:, code:] / 2) * random.standard_normal(
        (len(images), code), dtype="float32"
    )
    mixture = fit_mixture(codes, COMPONENTS, seed, reg_covar=1e-3, max_iter=30)
    shares, means, factor = tied_mixture(codes, CLUSTERS, seed)
    which = random.choice(len(shares), n, p=shares)
    drawn = (
        random.standard_normal((n, code), dtype="float32"),
        mixture.sample(random, n),
        means[which] + random.standard_normal((n, factor.shape[1])) @ factor.T,
    )
    return {name: model.decode(np.asarray(z, "float32")) for name, z in zip(SETTINGS, drawn)}


def judged(model, images, real, samples, code, judge):
    """Metrics of each kind of draws by name, beside the features `real` of as many images."""
    from keras_capsule_poe.evaluation.scores import scores_of

    found = {}
    for name, drawn in draws(model, images, samples, code).items():
        found[name] = scores_of(judge(drawn), real)
    return found


def training_seconds(folder):
    """Return the seconds that all stages of a model folder took."""
    from keras_capsule_poe.cli.options import load_settings
    from keras_capsule_poe.training import RunFolder

    names = list(load_settings(folder).stages)
    return sum(RunFolder(folder).done(name)["seconds"] for name in names)


def main():
    from keras_capsule_poe.cli.options import load_model, load_run_data
    from keras_capsule_poe.evaluation.classifier import evaluation_classifier

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, metavar="MODEL_DIR")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--code", nargs="+", type=int, default=[CODE])
    parser.add_argument("--beta", nargs="+", type=float, default=[BETA])
    parser.add_argument("--rate", nargs="+", type=float, default=[RATE])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--steps", type=int, help="default: as long as the model took")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data = load_run_data(args.model)
    limits = {"seconds": 1e9, "steps": args.steps}
    if args.steps is None:
        limits = {"seconds": training_seconds(args.model)}
    parameters = load_model(args.model).count_params()
    judge = evaluation_classifier(data.train)
    seen = data.held_out if args.held_out else data.test
    samples = min(args.samples, len(seen.images))
    real, _ = judge(seen.images[:samples])
    rows = {}
    for code, beta, rate in itertools.product(args.code, args.beta, args.rate):
        options = {"code": code, "beta": beta, "rate": rate}
        model, about = fitted(data.train.images, parameters, **limits, **options)
        name = f"code {code}, beta {beta:g}, rate {rate:g}"
        rows[name] = judged(model, data.train.images, real, samples, code, judge)
        for domain, row in rows[name].items():
            row |= about
            shown = " ".join(
                f"{key} {row[key]:.3f}" for key in ("confident", "FID", "recall", "coverage")
            )
            print(f"{name}, {domain}: {shown} ({about['steps']} steps)", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
