"""Training cost and outline of the expert neurons."""

import math

from keras_capsule_poe.families.features.build import build_autoencoder, build_primary
from keras_capsule_poe.families.features.costs import BYTES, recomputed, shapes_of, trained
from keras_capsule_poe.families.neurons.build import build_experts

# Fraction of the machine's large float32 product rate; see `features.costs`.
SHARE = 0.14


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""
    model = build_autoencoder(config, image_shape)
    primary = build_primary(config, model.feature_shape)
    layer = build_experts(config, primary.capsules).machine
    shapes = {
        "image": tuple(image_shape),
        "feature map": model.feature_shape,
        "primary capsules": (primary.capsules, primary.dim),
        "expert neurons": (layer.capsules, layer.dim),
    }
    parameters = {
        "autoencoder": model.count_params(),
        "experts": sum(math.prod(weight.shape) for weight in layer.trainable_weights),
    }
    return shapes, parameters


def experts(config, image_shape, images, held_out):
    """Return the `Cost` of training the experts."""
    settings = config["experts"]
    maps = math.prod(shapes_of(config, image_shape).features) * settings.capsules * settings.dim
    # Products of routing, of the Gibbs chain, of two correlations and of the reported error.
    flops = 2 * maps * (2 * settings.iterations + 2 * settings.passes + 5)
    flops += recomputed(config, image_shape, images, held_out, SHARE)
    return trained(config, "experts", SHARE, flops, images, 8 * maps * BYTES)
