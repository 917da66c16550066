"""Bodies of capsule networks: three ways from images to input capsules."""

import keras

from keras_capsule_poe.functions.checks import one_of
from keras_capsule_poe.layers import ConvCapsules, FastConv2D, Squash, Standardize

# Minimum height and width of images in pixels, for each body.
SMALLEST = {"capsules": 17, "efficient": 11, "places": 14}
# Convolutions as (kernel size, filters, stride); in `_PLACES` None is average pooling.
_EFFICIENT = ((5, 32, 1), (3, 64, 1), (3, 64, 1), (3, 128, 2))
_PLACES = ((3, 64), (3, 64), None, (3, 128), (3, 128))


def build_body(net, image_shape, dtype, starts, standardized=False):
    """Return a `keras.Sequential` from images (B, H, W, C) to capsules (B, I, D)."""
    makers = {"capsules": _capsules, "efficient": _efficient, "places": _places}
    make, least = makers[one_of("body", net.body, tuple(makers))], SMALLEST[net.body]
    if min(image_shape[:2]) < least:
        raise ValueError(
            f"images must be at least {least}x{least} pixels for the body {net.body!r}. "
            f"Received: {image_shape[0]}x{image_shape[1]}"
        )
    layers = [Standardize(dtype="float32")] if standardized else []
    return keras.Sequential([*layers, *make(net, image_shape, dtype, starts)], name="primary")


def _capsules(net, image_shape, dtype, starts):
    padding = one_of("padding", net.padding, net.CHOICES["padding"])
    return [
        FastConv2D(
            net.filters,
            9,
            padding=padding,
            activation="relu",
            kernel_initializer=starts.kernel(0.05),
            bias_initializer=starts.bias(),
            dtype=dtype,
            name="convolution",
        ),
        ConvCapsules(
            net.types,
            net.primary_dim,
            padding=padding,
            divide=net.divide,
            kernel_initializer=starts.kernel(0.1),
            bias_initializer=starts.bias(),
            dtype=dtype,
            name="primary_capsules",
        ),
    ]


def _efficient(net, image_shape, dtype, starts):
    layers, sizes = efficient_convolutions(dtype, starts), image_shape[:2]
    for size, _, stride in _EFFICIENT:
        sizes = [(length - size) // stride + 1 for length in sizes]
    # A depthwise filter as large as the feature map leaves one position.
    return [
        *layers,
        keras.layers.DepthwiseConv2D(
            tuple(sizes), depthwise_initializer=starts.kernel(0.1), dtype=dtype
        ),
        keras.layers.Reshape((16, 8), dtype="float32"),
        Squash("exponential", dtype="float32", name="primary_capsules"),
    ]


def _places(net, image_shape, dtype, starts):
    shape = (-1, _PLACES[-1][1])
    return [*place_convolutions(dtype, starts), keras.layers.Reshape(shape, dtype="float32")]


def efficient_convolutions(dtype, starts):
    """Return the convolutional layers of the body "efficient"."""
    layers = []
    for size, filters, stride in _EFFICIENT:
        start = starts.kernel(0.1)
        layers += [
            FastConv2D(
                filters,
                size,
                strides=stride,
                activation="relu",
                kernel_initializer=start,
                dtype=dtype,
            ),
            keras.layers.BatchNormalization(dtype=dtype),
        ]
    return layers


def place_convolutions(dtype, starts):
    """Return the convolutional layers of the body "places"."""
    layers = []
    for convolution in _PLACES:
        if convolution is None:
            layers.append(keras.layers.AveragePooling2D(2, dtype=dtype))
            continue
        size, filters = convolution
        start = starts.kernel(0.1)
        layers.append(
            FastConv2D(filters, size, activation="relu", kernel_initializer=start, dtype=dtype)
        )
    return layers
