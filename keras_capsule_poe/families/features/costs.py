"""What the autoencoder and its features would take."""

import math

from keras_capsule_poe.data.mapping import CHUNK
from keras_capsule_poe.families.features import build
from keras_capsule_poe.families.features.encoded import feature_bytes
from keras_capsule_poe.models import ConvAutoencoder
from keras_capsule_poe.training.family import Cost

# Shares of the machine's large float32 product rate that each stage was seen to reach on two
# cores, what comes between the steps included; convolutions in bfloat16 exceed it, and so do those
# that take fewer multiplications.
SHARE = {"autoencoder": 1.1, "features": 0.9}
BFLOAT16_SHARE = {"autoencoder": 1.1, "features": 1.3}
BYTES = 4


def autoencoder(config, image_shape, images, held_out):
    """The `Cost` of training the autoencoder."""
    shapes = shapes_of(config, image_shape)
    activations = 6 * config["autoencoder"].batch_size * math.prod(shapes.inner) * BYTES
    # Backward, a convolution takes twice what it takes forward.
    share = _share(config, "autoencoder")
    return trained(config, "autoencoder", share, 3 * shapes.operations, images, activations)


def features(config, image_shape, images, held_out):
    """The `Cost` of writing the feature maps."""
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
    """Operations for the features of an image, where they are not kept on disk.

    Args:
        config, image_shape, images, held_out: See `features`.
        share: float, of the stage that computes them; what they take is given at its rate.

    Returns:
        float, zero where they are kept.
    """
    shapes = shapes_of(config, image_shape)
    if build.on_disk(config, shapes.features, images + held_out):
        return 0.0
    return shapes.operations / 2 * share / _share(config, "features")


def shapes_of(config, image_shape):
    """The shapes of the autoencoder, see `ConvAutoencoder.shapes`."""
    return ConvAutoencoder.shapes(image_shape, config["autoencoder"].filters)


def trained(config, section, share, flops, images, memory):
    """The `Cost` of a section that is trained over its `Schedule`.

    Args:
        config: `RunConfig`.
        section: str.
        share: float, see `Cost`.
        flops: float, of one image.
        images: int.
        memory: float, bytes.
    """
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
