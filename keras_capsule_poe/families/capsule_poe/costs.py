"""Training cost and outline of a product of expert capsules."""

import math

from keras_capsule_poe.families.capsule_poe import build
from keras_capsule_poe.families.features.build import build_autoencoder, build_primary
from keras_capsule_poe.families.features.costs import BYTES, recomputed, shapes_of, trained

# Fraction of the machine's large float32 product rate; see `features.costs`.
SHARE = {"encoder": 0.14, "decoder": 0.2}


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""
    model = build_autoencoder(config, image_shape)
    primary = build_primary(config, model.feature_shape)
    encoder = build.build_encoder(config, primary.capsules)
    decoder = build.build_decoder(config, primary.capsules)
    shapes = {
        "image": tuple(image_shape),
        "feature map": model.feature_shape,
        "primary capsules": (primary.capsules, primary.dim),
        "expert capsules": (config["encoder"].capsules, config["encoder"].dim),
    }
    parameters = {
        "autoencoder": model.count_params(),
        "encoder": math.prod(encoder.experts.kernel.shape),
        "decoder": math.prod(decoder.primaries.kernel.shape),
    }
    return shapes, parameters


def encoder(config, image_shape, images, held_out):
    """Return the `Cost` of training the encoder."""
    return _contrastive(config, "encoder", image_shape, images, held_out)


def decoder(config, image_shape, images, held_out):
    """Return the `Cost` of training the decoder."""
    return _contrastive(config, "decoder", image_shape, images, held_out)


def _contrastive(config, section, image_shape, images, held_out):
    experts = config["encoder"]
    maps = math.prod(shapes_of(config, image_shape).features) * experts.capsules * experts.dim
    # Products of routing, reconstruction and two correlations; two more per further CD step.
    further = getattr(config[section], "chain_steps", 1) - 1
    flops = 2 * maps * (2 * config[section].iterations + 1 + 4 + 2 * further)
    flops += recomputed(config, image_shape, images, held_out, SHARE[section])
    return trained(config, section, SHARE[section], flops, images, 8 * maps * BYTES)
