"""The autoencoder and the primary capsules from their settings, and how sections are read."""

import inspect

import numpy as np

from keras_capsule_poe.errors import ConfigError, DataError, in_section
from keras_capsule_poe.families.features import optimizers
from keras_capsule_poe.families.features.encoded import disk_limit, feature_bytes
from keras_capsule_poe.layers import PrimaryCapsules
from keras_capsule_poe.models import ConvAutoencoder
from keras_capsule_poe.models.autoencoder import SMALLEST_IMAGE
from keras_capsule_poe.training.precision import policy
from keras_capsule_poe.training.schedule import Schedule

# What takes the settings of each section, by name.
USES = {
    "autoencoder": (ConvAutoencoder, policy, Schedule, optimizers.for_autoencoder),
    "primary": (PrimaryCapsules,),
    "features": (disk_limit,),
}


def arguments(config, section, function):
    """The settings of a section that `function` takes, as its keyword arguments."""
    names = parameters(function)
    return {name: value for name, value in vars(config[section]).items() if name in names}


def parameters(function):
    """Names of the keyword arguments of a function, or of a class and those it extends."""
    if not inspect.isclass(function):
        return set(inspect.signature(function).parameters)
    ours = [c for c in function.__mro__ if c.__module__.startswith("keras_capsule_poe")]
    return {name for c in ours for name in inspect.signature(c).parameters}


def build_autoencoder(config, image_shape):
    """The autoencoder, built for images (H, W, C) but not compiled."""
    model = ConvAutoencoder(
        **arguments(config, "autoencoder", ConvAutoencoder),
        seed=config.seed,
        dtype=policy(**arguments(config, "autoencoder", policy)),
        name="autoencoder",
    )
    model.build((None, *image_shape))
    return model


def build_primary(config, feature_shape):
    """The primary capsules for feature maps (h, w, F), not yet adapted."""
    layer = PrimaryCapsules(**arguments(config, "primary", PrimaryCapsules), name="primary")
    layer.build((None, *feature_shape))
    return layer


def schedule(config, section):
    """The `Schedule` of a section."""
    return Schedule(**arguments(config, section, Schedule))


def optimizer(config, section, images):
    """The optimizer of a section, for so many training images."""
    epochs, steps = schedule(config, section).over(images)
    function = optimizers.for_autoencoder if section == "autoencoder" else optimizers.for_capsules
    return function(decay_steps=epochs * steps, **arguments(config, section, function))


def on_disk(config, feature_shape, images):
    """Whether the feature maps (h, w, F) of so many images are few enough to be kept on disk."""
    return feature_bytes(feature_shape, images) <= disk_limit(config["features"].limit)


def check_varied(config, data):
    """Refuses images whose features would have no scale.

    Args:
        config: `RunConfig`.
        data: `ImageData`.

    Raises:
        DataError: If all training images are equal.

    Examples:

    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> images = ImageSet(np.array([0, 255], "uint8").reshape(2, 1, 1, 1))
    >>> check_varied(None, ImageData(images, images))
    """
    images = data.train.images
    if all(np.array_equal(image, images[0]) for image in images):
        raise DataError(
            "Images must differ to train on them. "
            f"Received: {len(images)} training images, all equal"
        )


def smallest(config):
    """The least height and width of images, in pixels."""
    return SMALLEST_IMAGE


def check(config, image_shape, later):
    """Builds every part, so that its constructor says what it cannot be.

    Args:
        config: `RunConfig`.
        image_shape: (H, W, C), or None for one that always fits.
        later: Pairs (section, function of the primary capsules) in the order in which they are
            built after the primary capsules.

    Raises:
        ConfigError: That names the section.
    """
    shape = image_shape or (28, 28, 1)
    if min(shape[:2]) < SMALLEST_IMAGE:
        raise ConfigError(
            f"images must be at least {SMALLEST_IMAGE}x{SMALLEST_IMAGE} pixels for this model. "
            f"Received: {shape[0]}x{shape[1]}",
            mend="image_size",
        )
    with in_section("autoencoder"):
        feature_shape = build_autoencoder(config, shape).feature_shape
        optimizer(config, "autoencoder", images=1)
    with in_section("features"):
        disk_limit(config["features"].limit)
    with in_section("primary"):
        primary = build_primary(config, feature_shape)
    for section, build in later:
        with in_section(section):
            build(primary)
