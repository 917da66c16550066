"""What the expert neurons would take, and what the model would look like."""

import math

from keras_capsule_poe.families.features.build import build_autoencoder, build_primary
from keras_capsule_poe.families.features.costs import BYTES, recomputed, shapes_of, trained
from keras_capsule_poe.families.neurons.build import build_experts

# Share of the machine's large float32 product rate, see `features.costs`.
SHARE = 0.14


def outline(config, image_shape):
    """Shapes and numbers of parameters, two dicts, for people to read."""
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
    """The `Cost` of training the experts."""
    settings = config["experts"]
    maps = math.prod(shapes_of(config, image_shape).features) * settings.capsules * settings.dim
    # Products of routing, of the chain, of the two correlations and of the error that is shown.
    flops = 2 * maps * (2 * settings.iterations + 2 * settings.passes + 5)
    flops += recomputed(config, image_shape, images, held_out, SHARE)
    return trained(config, "experts", SHARE, flops, images, 8 * maps * BYTES)
