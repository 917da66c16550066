"""A model that the package knows nothing of: a linear code of pixels, in one file.

Its part `axes` is a linear autoencoder, trained by gradient descent. Then the spread of the codes
along each axis is measured. Each axis is a capsule of one dimension; an image of one capsule is the
mean image moved along its axis.
"""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import StatelessSeed
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.base.features import (
    begin,
    load_arrays,
    load_model,
    save_arrays,
    save_model,
)
from keras_capsule_poe.models.base.model import TrainedModel, export_images
from keras_capsule_poe.models.base.protocols import GenerativeModel, Mode, build_once
from keras_capsule_poe.training import Preset, Settings, TrainedPart
from keras_capsule_poe.training.settings import Count


class AxesSettings(TrainedPart):
    """Settings of the linear autoencoder.

    Attributes:
        number: Number of axes.
    """

    number: Count = 4
    steps: Count = 60
    batch_size: Count = 50


class ToySettings(Settings):
    MODEL = "toy"
    TEXT = "a linear code of pixels"
    STAGES = {"axes": ("axes",), "spread": (), "export": ()}
    PRESETS = {"plain": Preset("four axes"), "wide": Preset("eight", {"axes": {"number": 8}})}
    axes: AxesSettings = AxesSettings()


@keras.saving.register_keras_serializable("toy")
class Axes(keras.Model):
    """Linear autoencoder of images: the mean image plus a sum of `number` images."""

    def __init__(self, number, image_shape, **kwargs):
        super().__init__(**kwargs)
        self.number, self.image_shape = number, tuple(image_shape)

    def build(self, input_shape=None):
        pixels = int(np.prod(self.image_shape))
        start = keras.initializers.RandomNormal(stddev=0.05, seed=1)
        self.axes = self.add_weight(shape=(pixels, self.number), initializer=start, name="axes")
        self.mean = self.add_weight(shape=(pixels,), initializer="zeros", name="mean")
        self.built = True

    def encode(self, images):
        flat = ops.reshape(images, (-1, self.axes.shape[0]))
        return ops.matmul(flat - self.mean, self.axes)

    def decode(self, field):
        flat = self.mean + ops.matmul(field, ops.transpose(self.axes))
        return ops.reshape(flat, (-1, *self.image_shape))

    def call(self, images):
        return self.decode(self.encode(images))

    def train_step(self, data):
        return super().train_step((data, data))

    def get_config(self):
        return {**super().get_config(), "number": self.number, "image_shape": self.image_shape}


@keras.saving.register_keras_serializable("toy")
class LinearCode(TrainedModel, GenerativeModel, keras.Model):
    """Codes of images along axes, squashed by their spread over the training images."""

    SETTINGS = ToySettings
    PARTS = NEEDED = ("axes",)
    upper_bounds = ("whole_code",)

    def __init__(self, axes=None, *, preset=None, **settings):
        if self.start({"axes": axes}, preset, settings):
            self.assemble()

    def assemble(self):
        self.capsules, self.dim = self.axes.number, 1
        self.image_shape = self.axes.image_shape

    def build_parts(self, input_shape):
        build_once(self.axes, None)
        self.spread = self.add_weight(
            shape=(self.capsules,), initializer="ones", trainable=False, name="spread"
        )

    def train_parts(self, run):
        run.part("axes", train_axes)
        run.part("spread", measure_spread)
        run.part("export", lambda run: export_images(run, self.from_parts(run)))

    @classmethod
    def from_parts(cls, run):
        model = cls(load_model(run, "axes"))
        model.build()
        model.spread.assign(load_arrays(run, "spread/spread.npz")["spread"])
        return model

    @classmethod
    def outline(cls, settings, image_shape):
        pixels = int(np.prod(image_shape))
        return {"image": tuple(image_shape)}, {"axes": pixels * settings.axes.number}

    @property
    def modes(self):
        """Each image is of one axis, so a picture has a column for each."""
        return {"single": Mode(columns=self.capsules)}

    def code(self, images, coefficients=None):
        field = self.axes.encode(images)
        rest = images - self.axes.decode(field)
        field = field / self.spread
        capsules = (field / (1 + ops.abs(field)))[..., None]
        return {
            "capsules": capsules,
            "probabilities": ops.abs(capsules[..., 0]),
            "free_energy": ops.sum(ops.square(rest), axis=(1, 2, 3)) / 2,
        }

    def render(self, capsules):
        x = capsules[..., 0]
        field = x / ops.maximum(1 - ops.abs(x), 1e-3) * self.spread
        return {"images": ops.clip(self.axes.decode(field), 0, 1)}

    def code_of_capsule(self, capsule, seed, domain=None):
        field = keras.random.normal(ops.shape(capsule), seed=StatelessSeed(seed))
        x = field / (1 + ops.abs(field))
        return {"capsules": (x[:, None] * ops.one_hot(capsule, self.capsules))[..., None]}

    def to_features(self, images):
        return images

    def from_features(self, features):
        return ops.clip(features, 0, 1)

    def reconstructions(self, images):
        return {"whole_code": (self.reconstruct(images)["images"], images)}


def train_axes(run):
    """Train the linear autoencoder by the squared error."""
    settings, data = run.settings.axes, run.data
    model = Axes(settings.number, data.image_shape)
    model.build()
    begin(run, "axes", model)
    model.compile(keras.optimizers.Adam(settings.learning_rate), "mse", jit_compile=False)
    held_out = to_pixels(data.held_out.images[:50])

    def stream(**order):
        return batches(data.train.images, **order)

    def after_epoch():
        return {"held_out": float(np.square(model(held_out) - held_out).mean())}

    def picture(path):
        save_grid(path, [held_out[:5], model(held_out[:5])])

    last = run.fit("axes", model, stream, settings.schedule, after_epoch, picture)
    save_model(run, "axes", model)
    return last


def measure_spread(run):
    """Measure how far the codes of the training images spread along each axis."""
    codes = map_batches(load_model(run, "axes").encode, run.data.train.images)
    save_arrays(run, "spread/spread.npz", spread=codes.std(axis=0))
    return {}
