"""What the stages would take, and what the model would look like, without building it."""

import math

from keras_capsule_poe.families.capsule_poe import build
from keras_capsule_poe.training.family import Cost

# Shares of the machine's large float32 product rate that each stage was seen to reach on two
# cores, what comes between the steps included; convolutions in bfloat16 exceed it.
SHARE = {"autoencoder": 0.6, "features": 0.6, "encoder": 0.14, "decoder": 0.2}
BFLOAT16_SHARE = {"autoencoder": 0.9, "features": 1.3}
BYTES, CHUNK = 4, 256


class Sizes:
    """Sizes of the parts for images (H, W, C).

    Args:
        config: `RunConfig`.
        image_shape: (H, W, C).
    """

    def __init__(self, config, image_shape):
        filters, kernel = config["autoencoder"].filters, 9
        self.image = tuple(image_shape)
        self.inner = tuple(size - kernel + 1 for size in image_shape[:2])
        reduced = tuple((size - kernel) // 2 + 1 for size in self.inner)
        self.feature_map = (*reduced, filters)
        self.features = math.prod(self.feature_map)
        self.primary = (self.features // config["primary"].dim, config["primary"].dim)
        self.experts = (config["encoder"].capsules, config["encoder"].dim)
        self.outer = kernel**2 * image_shape[2] * filters
        self.reduction = kernel**2 * filters**2
        self.maps = math.prod(self.primary) * math.prod(self.experts)

    @property
    def forward_flops(self):
        """Floating-point operations of the autoencoder, both ways, for one image."""
        outer = math.prod(self.inner) * self.outer
        return 4 * (outer + math.prod(self.feature_map[:2]) * self.reduction)


def outline(config, image_shape):
    """Shapes and numbers of parameters, two dicts, for people to read."""
    sizes = Sizes(config, image_shape)
    shapes = {
        "image": sizes.image,
        "feature map": sizes.feature_map,
        "primary capsules": sizes.primary,
        "expert capsules": sizes.experts,
    }
    (capsules, dim), filters = sizes.experts, sizes.feature_map[2]
    parameters = {
        "autoencoder": 2 * sizes.outer + 2 * sizes.reduction + 3 * filters + sizes.image[2],
        "encoder": sizes.maps,
        "decoder": math.prod(sizes.primary) * capsules * (dim + config["decoder"].offset),
    }
    return shapes, parameters


def autoencoder(config, image_shape, images, test_images):
    """The `Cost` of training the autoencoder."""
    sizes = Sizes(config, image_shape)
    batch = config["autoencoder"].batch_size
    activations = 6 * batch * math.prod(sizes.inner) * sizes.feature_map[2] * BYTES
    flops = 3 * sizes.forward_flops
    return _trained(config, "autoencoder", flops, images, activations)


def features(config, image_shape, images, test_images):
    """The `Cost` of writing the feature maps."""
    sizes = Sizes(config, image_shape)
    return Cost(
        flops=sizes.forward_flops / 2 * images,
        share=_share(config, "features"),
        steps=math.ceil(images / CHUNK),
        disk=2 * sizes.features * (images + test_images),
    )


def encoder(config, image_shape, images, test_images):
    """The `Cost` of training the encoder."""
    return _contrastive(config, "encoder", image_shape, images)


def decoder(config, image_shape, images, test_images):
    """The `Cost` of training the decoder."""
    return _contrastive(config, "decoder", image_shape, images)


def _contrastive(config, section, image_shape, images):
    maps = Sizes(config, image_shape).maps
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
