"""The parts of a product of expert capsules, built from settings."""

import keras

from keras_capsule_poe.families.capsule_poe.codes import CodeDescription
from keras_capsule_poe.families.features import build as features
from keras_capsule_poe.families.features.build import arguments, optimizer
from keras_capsule_poe.families.features.build import check as check_parts
from keras_capsule_poe.families.features.optimizers import for_capsules
from keras_capsule_poe.families.features.starts import MapStart
from keras_capsule_poe.layers import CapsulePoE
from keras_capsule_poe.models import CapsuleDecoder, CapsuleEncoder
from keras_capsule_poe.training.schedule import Schedule


def initial_maps(initial_stddev, l2, seed):
    """Return a `CapsulePoE`'s arguments for Gaussian initial maps and weight decay `l2`."""
    if not initial_stddev > 0:
        raise ValueError(f"`initial_stddev` must be above zero. Received: {initial_stddev!r}")
    if not l2 >= 0:
        raise ValueError(f"`l2` must be zero or more. Received: l2={l2!r}")
    return {
        "kernel_initializer": keras.initializers.RandomNormal(stddev=initial_stddev, seed=seed),
        # The gradient of L2(l) is 2 l W, so half of `l2` gives a decay rate of `l2`.
        "kernel_regularizer": keras.regularizers.L2(l2 / 2),
    }


# Functions and classes that take the settings of each section.
USES = {
    **features.USES,
    "encoder": (
        CapsulePoE, initial_maps, CapsuleEncoder, MapStart, CodeDescription, Schedule,
        for_capsules,
    ),
    "decoder": (CapsulePoE, initial_maps, CapsuleDecoder, Schedule, for_capsules),
}  # fmt: skip


def build_encoder(config, primary_capsules):
    """Return the capsule encoder, built for I primary capsules."""
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
    """Return the capsule decoder, built for I primary capsules."""
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
    """Return the initialization of the encoder's maps."""
    return MapStart(**arguments(config, "encoder", MapStart))


def build_description(config):
    """Return the `CodeDescription` of the settings."""
    return CodeDescription(**arguments(config, "encoder", CodeDescription))


def check(config, image_shape=None):
    """Build every part to validate the settings; raise `ConfigError` that names the section."""

    def contrastive(section, build):
        def built(primary):
            optimizer(config, section, images=1)
            build(config, primary.capsules)

        return section, built

    later = (
        contrastive("encoder", build_encoder),
        contrastive("decoder", build_decoder),
        ("encoder", lambda primary: (build_start(config), build_description(config))),
    )
    check_parts(config, image_shape, later)


def _maps(config, section, seed):
    return initial_maps(**arguments(config, section, initial_maps), seed=seed)
