"""Models from a configuration."""

import keras

from keras_capsule_poe.layers import CapsulePoE, PrimaryCapsules
from keras_capsule_poe.models import CapsuleDecoder, CapsuleEncoder, ConvAutoencoder


def build_autoencoder(config, image_shape, precision=None):
    """The autoencoder of a `RunConfig`, built for images (H, W, C) but not compiled."""
    options = config.autoencoder
    model = ConvAutoencoder(
        filters=options.filters,
        dropout=options.dropout,
        negative_slope=options.negative_slope,
        seed=config.seed,
        dtype=precision or options.precision,
        name="autoencoder",
    )
    model.build((None, *image_shape))
    return model


def build_primary(config, feature_shape):
    """The primary capsules of a `RunConfig` for feature maps (h, w, F), not yet adapted."""
    options = config.primary
    layer = PrimaryCapsules(
        options.dim, center=options.center, target_length=options.target_length, name="primary"
    )
    layer.build((None, *feature_shape))
    return layer


def build_encoder(config, primary_capsules):
    """The capsule encoder of a `RunConfig`.

    Args:
        config: `RunConfig`.
        primary_capsules: int, I.
    """
    options = config.encoder
    experts = _capsules(
        options,
        options.capsules,
        options.dim,
        seed=config.seed + 1,
        activation_prior=options.activation_prior,
        use_routing_bias=bool(options.balance),
        name="experts",
    )
    model = CapsuleEncoder(
        experts,
        balance=options.balance,
        seed=config.seed,
        name="encoder",
    )
    model.build((None, primary_capsules, config.primary.dim))
    return model


def build_decoder(config, primary_capsules):
    """The capsule decoder of a `RunConfig`, onto I primary capsules."""
    options = config.decoder
    primaries = _capsules(
        options, primary_capsules, config.primary.dim, seed=config.seed + 2, name="primaries"
    )
    model = CapsuleDecoder(
        primaries,
        feature_scale=options.feature_scale,
        activity=options.activity,
        offset=options.offset,
        conditional=options.conditional,
        seed=config.seed,
        name="decoder",
    )
    model.build((None, config.encoder.capsules, config.encoder.dim))
    return model


def _capsules(options, capsules, dim, seed, **kwargs):
    return CapsulePoE(
        capsules,
        dim,
        iterations=options.iterations,
        temperature=options.temperature,
        normalize=options.normalize,
        agreement=options.agreement,
        scale=_scale(options),
        implementation=options.implementation,
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=options.initial_stddev, seed=seed
        ),
        # The update subtracts 2 * l2 * W of this regulariser, hence half: the rate is `l2`.
        kernel_regularizer=keras.regularizers.L2(options.l2 / 2),
        **kwargs,
    )


def _scale(options):
    """`scale`, where none means a mean coefficient of one over the inputs."""
    if options.scale is None:
        return "mean" if options.normalize == "inputs" else 1.0
    return options.scale
