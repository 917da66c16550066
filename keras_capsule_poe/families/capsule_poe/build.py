"""The parts of a product of expert capsules from their settings."""

import inspect

import keras

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.families.capsule_poe import optimizers
from keras_capsule_poe.families.capsule_poe.codes import CodeDescription
from keras_capsule_poe.families.capsule_poe.starts import MapStart
from keras_capsule_poe.layers import CapsulePoE, PrimaryCapsules
from keras_capsule_poe.models import CapsuleDecoder, CapsuleEncoder, ConvAutoencoder
from keras_capsule_poe.models.autoencoder import SMALLEST_IMAGE
from keras_capsule_poe.training.precision import policy
from keras_capsule_poe.training.schedule import Schedule


def initial_maps(initial_stddev, l2, seed):
    """Keyword arguments of a `CapsulePoE`: its maps as Gaussian noise, and their decay.

    Args:
        initial_stddev: float, above zero.
        l2: float, the rate of decay, in units of the learning rate; zero or more.
        seed: int.

    Raises:
        ValueError: If a number is out of range.
    """
    if not initial_stddev > 0:
        raise ValueError(f"`initial_stddev` must be above zero. Received: {initial_stddev!r}")
    if not l2 >= 0:
        raise ValueError(f"`l2` must be zero or more. Received: l2={l2!r}")
    return {
        "kernel_initializer": keras.initializers.RandomNormal(stddev=initial_stddev, seed=seed),
        # The update subtracts 2 * l2 * W of this regulariser, hence half: the rate is `l2`.
        "kernel_regularizer": keras.regularizers.L2(l2 / 2),
    }


# What takes the settings of each section, by name.
USES = {
    "autoencoder": (ConvAutoencoder, policy, Schedule, optimizers.for_autoencoder),
    "primary": (PrimaryCapsules,),
    "encoder": (
        CapsulePoE, initial_maps, CapsuleEncoder, MapStart, CodeDescription, Schedule,
        optimizers.for_capsules,
    ),
    "decoder": (CapsulePoE, initial_maps, CapsuleDecoder, Schedule, optimizers.for_capsules),
}  # fmt: skip


def arguments(config, section, function):
    """The settings of a section that `function` takes, as its keyword arguments."""
    names = _parameters(function)
    return {name: value for name, value in vars(config[section]).items() if name in names}


def _parameters(function):
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


def build_encoder(config, primary_capsules):
    """The capsule encoder of I primary capsules."""
    settings = config["encoder"]
    experts = CapsulePoE(
        **arguments(config, "encoder", CapsulePoE),
        **_maps(config, "encoder", config.seed + 1),
        use_routing_bias=bool(settings.balance),
        name="experts",
    )
    model = CapsuleEncoder(
        experts, **arguments(config, "encoder", CapsuleEncoder), seed=config.seed, name="encoder"
    )
    model.build((None, primary_capsules, config["primary"].dim))
    return model


def build_decoder(config, primary_capsules):
    """The capsule decoder, onto I primary capsules."""
    primaries = CapsulePoE(
        primary_capsules,
        config["primary"].dim,
        **arguments(config, "decoder", CapsulePoE),
        **_maps(config, "decoder", config.seed + 2),
        name="primaries",
    )
    model = CapsuleDecoder(
        primaries, **arguments(config, "decoder", CapsuleDecoder), seed=config.seed, name="decoder"
    )
    model.build((None, config["encoder"].capsules, config["encoder"].dim))
    return model


def build_start(config):
    """How the encoder's maps start."""
    return MapStart(**arguments(config, "encoder", MapStart))


def build_description(config):
    """How the codes of training are described."""
    return CodeDescription(**arguments(config, "encoder", CodeDescription))


def schedule(config, section):
    """The `Schedule` of a section."""
    return Schedule(**arguments(config, section, Schedule))


def optimizer(config, section, images):
    """The optimizer of a section, for so many training images."""
    epochs, steps = schedule(config, section).over(images)
    function = optimizers.for_autoencoder if section == "autoencoder" else optimizers.for_capsules
    return function(decay_steps=epochs * steps, **arguments(config, section, function))


def smallest(config):
    """The least height and width of images, in pixels."""
    return SMALLEST_IMAGE


def check(config, image_shape=None):
    """Builds every part, so that its constructor says what it cannot be.

    Args:
        config: `RunConfig`.
        image_shape: (H, W, C), or None for one that always fits.

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
    section = "autoencoder"
    try:
        feature_shape = build_autoencoder(config, shape).feature_shape
        optimizer(config, section, images=1)
        section = "primary"
        capsules = build_primary(config, feature_shape).capsules
        for section, build in (("encoder", build_encoder), ("decoder", build_decoder)):
            optimizer(config, section, images=1)
            build(config, capsules)
        section = "encoder"
        build_start(config)
        build_description(config)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{section}: {' '.join(str(error).split())}") from error


def _maps(config, section, seed):
    return initial_maps(**arguments(config, section, initial_maps), seed=seed)
