"""What the stages would take, and what the model would look like."""

import math

from keras_capsule_poe.families.capsule_poe import build
from keras_capsule_poe.models import ConvAutoencoder
from keras_capsule_poe.training.family import Cost

# Shares of the machine's large float32 product rate that each stage was seen to reach on two
# cores, what comes between the steps included; convolutions in bfloat16 exceed it.
SHARE = {"autoencoder": 0.6, "features": 0.6, "encoder": 0.14, "decoder": 0.2}
BFLOAT16_SHARE = {"autoencoder": 0.9, "features": 1.3}
BYTES, CHUNK = 4, 256


def outline(config, image_shape):
    """Shapes and numbers of parameters, two dicts, for people to read."""
    model = build.build_autoencoder(config, image_shape)
    primary = build.build_primary(config, model.feature_shape)
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


def autoencoder(config, image_shape, images, test_images):
    """The `Cost` of training the autoencoder."""
    shapes = _shapes(config, image_shape)
    activations = 6 * config["autoencoder"].batch_size * math.prod(shapes.inner) * BYTES
    # Backward, a convolution takes twice what it takes forward.
    return _trained(config, "autoencoder", 3 * shapes.operations, images, activations)


def features(config, image_shape, images, test_images):
    """The `Cost` of writing the feature maps."""
    shapes = _shapes(config, image_shape)
    every = images + test_images
    return Cost(
        flops=shapes.operations / 2 * every,
        share=_share(config, "features"),
        steps=math.ceil(every / CHUNK),
        disk=2 * math.prod(shapes.features) * every,
    )


def encoder(config, image_shape, images, test_images):
    """The `Cost` of training the encoder."""
    return _contrastive(config, "encoder", image_shape, images)


def decoder(config, image_shape, images, test_images):
    """The `Cost` of training the decoder."""
    return _contrastive(config, "decoder", image_shape, images)


def _shapes(config, image_shape):
    return ConvAutoencoder.shapes(image_shape, config["autoencoder"].filters)


def _contrastive(config, section, image_shape, images):
    experts = config["encoder"]
    maps = math.prod(_shapes(config, image_shape).features) * experts.capsules * experts.dim
    # Products of routing, reconstruction and the two correlations.
    flops = 2 * maps * (2 * config[section].iterations + 1 + 4)
    return _trained(config, section, flops, images, 8 * maps * BYTES)


def _trained(config, section, flops, images, memory):
    epochs, steps = build.schedule(config, section).over(images)
    return Cost(
        flops=float(flops) * images * epochs,
        share=_share(config, section),
        epochs=epochs,
        steps=epochs * steps,
        memory=memory,
    )


def _share(config, stage):
    precision = build.policy(**build.arguments(config, "autoencoder", build.policy))
    shares = SHARE | (BFLOAT16_SHARE if precision == "mixed_bfloat16" else {})
    return shares[stage]
