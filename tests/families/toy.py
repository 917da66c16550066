"""A family of models that the package knows nothing of: a linear code of pixels.

Two stages train it: `axes` learns the axes of a linear autoencoder by gradient descent, `spread`
measures how far codes spread along them. Each axis is a capsule of one dimension; an image of one
capsule is the mean image moved along its axis.
"""

from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.randomness import StatelessSeed
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.base.protocols import GenerativeModel, Mode
from keras_capsule_poe.plotting import sample_rows
from keras_capsule_poe.serving import export_saved_model
from keras_capsule_poe.training import Family, Recipe, Schedule, Stage


@dataclass
class AxesSection:
    axes: int = 4
    epochs: int | None = None
    steps: int = 60
    batch_size: int = 50
    learning_rate: float = 0.01


@keras.saving.register_keras_serializable("toy")
class LinearCode(GenerativeModel, keras.Model):
    """Pixels as a mean image plus a sum of `axes` images."""

    upper_bounds = ("whole_code",)

    def __init__(self, axes, image_shape, **kwargs):
        super().__init__(**kwargs)
        if axes < 1:
            raise ValueError(f"`axes` must be at least 1. Received: axes={axes!r}")
        self.capsules, self.dim, self.image_shape = axes, 1, tuple(image_shape)

    @property
    def modes(self):
        """Each image is of one axis, so a picture has a column for each."""
        return {"single": Mode(columns=self.capsules)}

    def build(self, input_shape=None):
        pixels = int(np.prod(self.image_shape))
        start = keras.initializers.RandomNormal(stddev=0.05, seed=1)
        self.axes = self.add_weight(shape=(pixels, self.capsules), initializer=start, name="axes")
        self.mean = self.add_weight(shape=(pixels,), initializer="zeros", name="mean")
        self.spread = self.add_weight(
            shape=(self.capsules,), initializer="ones", trainable=False, name="spread"
        )
        self.built = True

    def code(self, images, coefficients=None):
        flat = ops.reshape(images, (-1, self.axes.shape[0])) - self.mean
        field = ops.matmul(flat, self.axes) / self.spread
        rest = flat - ops.matmul(field * self.spread, ops.transpose(self.axes))
        capsules = (field / (1 + ops.abs(field)))[..., None]
        return {
            "capsules": capsules,
            "probabilities": ops.abs(capsules[..., 0]),
            "free_energy": ops.sum(ops.square(rest), axis=-1) / 2,
        }

    def render(self, capsules):
        x = capsules[..., 0]
        field = x / ops.maximum(1 - ops.abs(x), 1e-3) * self.spread
        flat = self.mean + ops.matmul(field, ops.transpose(self.axes))
        return {"images": ops.clip(ops.reshape(flat, (-1, *self.image_shape)), 0, 1)}

    def draw(self, n, seed, mode=None, domain=None):
        self.resolve_mode(mode, domain)
        field = keras.random.normal((n,), seed=StatelessSeed(seed))
        # Each block of J shows each capsule once; the second number keeps the two draws apart.
        blocks = (n + self.capsules - 1) // self.capsules
        rank = keras.random.uniform((blocks, self.capsules), seed=StatelessSeed(seed, 1))
        capsule = ops.cast(ops.reshape(ops.argsort(rank, axis=-1), (-1,))[:n], "int32")
        x = field / (1 + ops.abs(field))
        return {
            "capsules": (x[:, None] * ops.one_hot(capsule, self.capsules))[..., None],
            "capsule": capsule,
        }

    def to_features(self, images):
        return images

    def from_features(self, features):
        return ops.clip(features, 0, 1)

    def reconstructions(self, images):
        return {"whole_code": (self.reconstruct(images)["images"], images)}

    def train_step(self, data):
        images = data[0] if isinstance(data, tuple) else data
        return super().train_step((images, images))

    def get_config(self):
        return {**super().get_config(), "axes": self.capsules, "image_shape": self.image_shape}


def build(config, image_shape):
    settings = config["axes"]
    model = LinearCode(settings.axes, image_shape)
    model.build()
    return model, Schedule(settings.epochs, settings.steps, settings.batch_size)


def train_axes(run):
    model, schedule = build(run.config, run.data.image_shape)
    model.compile(keras.optimizers.Adam(run.config["axes"].learning_rate), "mse", jit_compile=False)
    held_out = to_pixels(run.data.held_out.images[:50])

    def picture(path):
        save_grid(path, [held_out[:5], model(held_out[:5])])

    last = run.fit(
        "axes",
        model,
        lambda **order: batches(run.data.train.images, **order),
        schedule,
        after_epoch=lambda: {"held_out": float(np.square(model(held_out) - held_out).mean())},
        picture=picture,
    )
    with atomic_write(run.path("axes/model.keras"), suffix=".keras") as temporary:
        model.save(temporary)
    return last


def measure_spread(run):
    model = load(run.path("axes/model.keras"))
    x = map_batches(lambda images: model.code(images)["capsules"], run.data.train.images)[..., 0]
    with atomic_write(run.path("spread/spread.npz"), suffix=".npz") as temporary:
        np.savez(temporary, spread=(x / (1 - np.abs(x))).std(axis=0))
    return {}


def export(run):
    model = load(run.path("axes/model.keras"))
    with np.load(run.path("spread/spread.npz")) as stored:
        model.spread.assign(stored["spread"])
    with atomic_write(run.path("model.keras"), suffix=".keras") as temporary:
        model.save(temporary)
    export_saved_model(model, run.folder.path, run.folder.card(run.config))
    save_grid(run.path("samples.png"), sample_rows(model, 3, run.config.seed))
    return {}


def load(path):
    return keras.models.load_model(path, compile=False)


FAMILY = Family(
    name="toy",
    text="a linear code of pixels",
    sections={"axes": AxesSection},
    stages=(
        Stage("axes", train_axes, section="axes", writes=("axes/model.keras",)),
        Stage("spread", measure_spread, writes=("spread/spread.npz",)),
        Stage("export", export, writes=("model.keras",), pictures=("samples.png",)),
    ),
    recipes={"plain": Recipe("four axes"), "wide": Recipe("eight axes", {"axes": {"axes": 8}})},
    check=lambda config, image_shape: build(config, image_shape or (8, 8, 1)),
    outline=lambda config, image_shape: (
        {"image": tuple(image_shape)},
        {"axes": int(np.prod(image_shape)) * config["axes"].axes},
    ),
    load=load,
)
