"""Optimizers of the stages, with their learning-rate schedules."""

import math
import re

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled, share
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.distributed.distribution import Distribution
from keras_capsule_poe.errors import ConfigError, in_section
from keras_capsule_poe.former_names import current
from keras_capsule_poe.layers.primary_capsules import PrimaryCapsules
from keras_capsule_poe.models.base.autoencoder import SMALLEST_IMAGE, ConvAutoencoder
from keras_capsule_poe.training.family import Schedule
from keras_capsule_poe.training.optimizers import ConvolutionMuon
from keras_capsule_poe.training.precision import policy


def for_autoencoder(
    decay_steps, learning_rate=2e-3, min_learning_rate_fraction=0.02, weight_decay=2.0
):
    """Return Muon with a short warm-up and a cosine decay to a fraction of the rate."""
    _check_rates(learning_rate, min_learning_rate_fraction)
    if not weight_decay >= 0:
        raise ValueError(f"`weight_decay` must be zero or more. Received: {weight_decay!r}")
    warm_up = min(50, max(1, decay_steps // 10))
    rate = keras.optimizers.schedules.CosineDecay(
        learning_rate / 10,
        max(1, decay_steps - warm_up),
        alpha=min_learning_rate_fraction,
        warmup_target=learning_rate,
        warmup_steps=warm_up,
    )
    # Weight decay keeps the features in few directions.
    return ConvolutionMuon(rate, weight_decay=weight_decay or None)


def for_capsules(decay_steps, learning_rate=0.2, momentum=0.9, min_learning_rate_fraction=0.1):
    """Return SGD with momentum and a cosine decay to a fraction of the rate."""
    _check_rates(learning_rate, min_learning_rate_fraction)
    if not 0 <= momentum < 1:
        raise ValueError(f"`momentum` must lie in [0, 1). Received: momentum={momentum!r}")
    rate = keras.optimizers.schedules.CosineDecay(
        learning_rate, decay_steps, alpha=min_learning_rate_fraction
    )
    return keras.optimizers.SGD(rate, momentum=momentum)


def _check_rates(learning_rate, min_learning_rate_fraction):
    if not learning_rate > 0:
        raise ValueError(
            f"`learning_rate` must be above zero. Received: learning_rate={learning_rate!r}"
        )
    share("min_learning_rate_fraction", min_learning_rate_fraction, or_zero=True)


# Images per device and call. The number is fixed because other batch sizes round differently.
AT_ONCE = 128
_UNITS = {"MB": 1e6, "GB": 1e9, "TB": 1e12}


class EncodedRows:
    """Float16 feature maps (N, h, w, F) of images, computed each time that rows are read."""

    dtype = np.dtype("float16")

    def __init__(self, autoencoder, images, distribution=None):
        distribution = distribution or Distribution()
        self.images = images
        self.shape = (len(images), *autoencoder.feature_shape)
        self._at_once = AT_ONCE * distribution.devices

        def encode(pixels):
            with autoencoder.fast():
                return keras.ops.cast(autoencoder.encode(pixels), self.dtype.name)

        self._encode = distribution.on_devices(compiled(encode))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, key):
        if isinstance(key, (int, np.integer)):
            return self[[key]][0]
        images = self.images[key]
        found = np.empty((len(images), *self.shape[1:]), self.dtype)
        together = np.zeros((self._at_once, *self.images.shape[1:]), "float32")
        for start in range(0, len(images), self._at_once):
            some = to_pixels(images[start : start + self._at_once])
            together[: len(some)] = some
            maps = keras.ops.convert_to_numpy(self._encode(keras.ops.convert_to_tensor(together)))
            found[start : start + len(some)] = maps[: len(some)]
        return found


def feature_bytes(feature_shape, images):
    """Return the bytes on disk of the feature maps (h, w, F) of `images` images."""
    return EncodedRows.dtype.itemsize * math.prod(feature_shape) * images


def disk_limit(limit=100.0):
    """Return the disk limit of features in bytes, from a number of GB or text like "500 MB"."""
    found = re.fullmatch(r"([\d.]+) ?([MGT]B)?", str(limit).upper())
    try:
        return float(found[1]) * _UNITS[found[2] or "GB"]
    except (TypeError, ValueError):
        raise ValueError(
            "`limit` must be a number of GB, zero or more, or have a unit, as 500MB, 20GB or 2TB. "
            f"Received: limit={limit!r}"
        ) from None


def build_autoencoder(config, image_shape):
    """Return the autoencoder, built for images (H, W, C) but not compiled."""
    net = config["autoencoder"]
    model = ConvAutoencoder(
        filters=net.filters,
        dropout=net.dropout,
        negative_slope=net.negative_slope,
        seed=config.seed,
        dtype=policy(net.precision),
        name="autoencoder",
    )
    model.build((None, *image_shape))
    return model


def build_primary(config, feature_shape):
    """Return the primary capsules, built for feature maps (h, w, F) but not adapted."""
    primary = config["primary"]
    layer = PrimaryCapsules(
        dim=primary.dim, center=primary.center, target_length=primary.target_length, name="primary"
    )
    layer.build((None, *feature_shape))
    return layer


def schedule(config, section):
    """Return the training `Schedule` of a section."""
    settings = config[section]
    return Schedule(settings.epochs, settings.steps, settings.batch_size)


def optimizer(config, section, images):
    """Return the optimizer of a section for `images` training images."""
    epochs, steps = schedule(config, section).over(images)
    settings, decay_steps = config[section], epochs * steps
    if section == "autoencoder":
        return for_autoencoder(
            decay_steps,
            settings.learning_rate,
            settings.min_learning_rate_fraction,
            settings.weight_decay,
        )
    return for_capsules(
        decay_steps, settings.learning_rate, settings.momentum, settings.min_learning_rate_fraction
    )


def routing_arguments(settings):
    """Return a section's arguments of a routing layer."""
    return {
        "routing_iterations": settings.routing_iterations,
        "agreement_scale": settings.temperature,
        "softmax_over": settings.softmax_over,
        "coefficient_sum": settings.coefficient_sum,
        **current("RoutingLayer", {"implementation": settings.implementation}),
    }


def load_balancing(settings):
    """Return a section's rate of load balancing; raise ValueError unless it is in [0, 1]."""
    return share("load_balancing", settings.load_balancing, or_zero=True)


def on_disk(config, feature_shape, images):
    """Return whether the feature maps (h, w, F) of all images fit the disk limit."""
    return feature_bytes(feature_shape, images) <= disk_limit(config["features"].limit)


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
            hint="image_size",
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


def shapes_of(config, image_shape):
    """Return the shapes of the autoencoder; see `ConvAutoencoder.shapes`."""
    return ConvAutoencoder.shapes(image_shape, config["autoencoder"].filters)
