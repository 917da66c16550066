"""The autoencoder and the primary capsules, built from settings."""

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

# Functions and classes that take the settings of each section.
USES = {
    "autoencoder": (ConvAutoencoder, policy, Schedule, optimizers.for_autoencoder),
    "primary": (PrimaryCapsules,),
    "features": (disk_limit,),
}


def arguments(config, section, function):
    """Return the settings of a section that `function` accepts, as keyword arguments."""
    names = parameters(function)
    return {name: value for name, value in vars(config[section]).items() if name in names}


def parameters(function):
    """Return the argument names of a function, or of a class and its bases in this package."""
    if not inspect.isclass(function):
        return set(inspect.signature(function).parameters)
    ours = [c for c in function.__mro__ if c.__module__.startswith("keras_capsule_poe")]
    return {name for c in ours for name in inspect.signature(c).parameters}


def build_autoencoder(config, image_shape):
    """Return the autoencoder, built for images (H, W, C) but not compiled."""
    model = ConvAutoencoder(
        **arguments(config, "autoencoder", ConvAutoencoder),
        seed=config.seed,
        dtype=policy(**arguments(config, "autoencoder", policy)),
        name="autoencoder",
    )
    model.build((None, *image_shape))
    return model


def build_primary(config, feature_shape):
    """Return the primary capsules, built for feature maps (h, w, F) but not adapted."""
    layer = PrimaryCapsules(**arguments(config, "primary", PrimaryCapsules), name="primary")
    layer.build((None, *feature_shape))
    return layer


def schedule(config, section):
    """Return the training `Schedule` of a section."""
    return Schedule(**arguments(config, section, Schedule))


def optimizer(config, section, images):
    """Return the optimizer of a section for `images` training images."""
    epochs, steps = schedule(config, section).over(images)
    function = optimizers.for_autoencoder if section == "autoencoder" else optimizers.for_capsules
    return function(decay_steps=epochs * steps, **arguments(config, section, function))


def on_disk(config, feature_shape, images):
    """Return whether the feature maps (h, w, F) of all images fit the disk limit."""
    return feature_bytes(feature_shape, images) <= disk_limit(config["features"].limit)


def check_varied(config, data):
    """Raise `DataError` if all training images are equal."""
    # The features of equal images have no scale.
    images = data.train.images
    if all(np.array_equal(image, images[0]) for image in images):
        raise DataError(
            "Images must differ to train on them. "
            f"Received: {len(images)} training images, all equal"
        )


def smallest(config):
    """Return the minimum height and width of images in pixels."""
    return SMALLEST_IMAGE


def check(config, image_shape, later):
    """Build every part to validate the settings; raise `ConfigError` that names the section."""
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
    # `later` has pairs (section, function of the primary capsules), in build order.
    for section, build in later:
        with in_section(section):
            build(primary)
