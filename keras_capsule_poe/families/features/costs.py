"""Training cost of the autoencoder and its features."""

import math

from keras_capsule_poe.data.mapping import CHUNK
from keras_capsule_poe.families.features import build
from keras_capsule_poe.families.features.encoded import feature_bytes
from keras_capsule_poe.models import ConvAutoencoder
from keras_capsule_poe.training.family import Cost

# Fraction of the machine's large float32 product rate that each stage reached on two cores. It
# exceeds 1 with bfloat16 convolutions or fast convolution algorithms.
SHARE = {"autoencoder": 1.1, "features": 0.9}
BFLOAT16_SHARE = {"autoencoder": 1.1, "features": 1.3}
BYTES = 4


def autoencoder(config, image_shape, images, held_out):
    """Return the `Cost` of training the autoencoder."""
    shapes = shapes_of(config, image_shape)
    activations = 6 * config["autoencoder"].batch_size * math.prod(shapes.inner) * BYTES
    # A convolution's backward pass costs twice its forward pass.
    share = _share(config, "autoencoder")
    return trained(config, "autoencoder", share, 3 * shapes.operations, images, activations)


def features(config, image_shape, images, held_out):
    """Return the `Cost` of computing the feature maps."""
    shapes = shapes_of(config, image_shape)
    every = images + held_out
    stays = build.on_disk(config, shapes.features, every)
    size = feature_bytes(shapes.features, every)
    taken = f"{size / 1e9:.2f} GB on disk"
    return Cost(
        flops=shapes.operations / 2 * every,
        share=_share(config, "features"),
        steps=math.ceil(every / CHUNK),
        disk=size if stays else 0,
        note=taken
        if stays
        else f"computed anew for each batch, since they would take {taken}, "
        f"above features.limit ({config['features'].limit})",
    )


def recomputed(config, image_shape, images, held_out, share):
    """Return the operations per image to recompute features, at the rate `share`; 0 if cached."""
    shapes = shapes_of(config, image_shape)
    if build.on_disk(config, shapes.features, images + held_out):
        return 0.0
    return shapes.operations / 2 * share / _share(config, "features")


def shapes_of(config, image_shape):
    """Return the shapes of the autoencoder; see `ConvAutoencoder.shapes`."""
    return ConvAutoencoder.shapes(image_shape, config["autoencoder"].filters)


def trained(config, section, share, flops, images, memory):
    """Return the `Cost` of training a section, from the operations `flops` of one image."""
    epochs, steps = build.schedule(config, section).over(images)
    return Cost(
        flops=float(flops) * images * epochs,
        share=share,
        epochs=epochs,
        steps=epochs * steps,
        memory=memory,
    )


def _share(config, stage):
    precision = build.policy(**build.arguments(config, "autoencoder", build.policy))
    shares = SHARE | (BFLOAT16_SHARE if precision == "mixed_bfloat16" else {})
    return shares[stage]
