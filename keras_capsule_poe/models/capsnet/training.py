"""Bodies of capsule networks: three ways from images to input capsules."""

import functools

import keras

from keras_capsule_poe.core.numerics import one_of
from keras_capsule_poe.layers.capsules import Squash, Standardize
from keras_capsule_poe.layers.conv_capsules import ConvCapsules
from keras_capsule_poe.layers.convolutions import FastConv2D
from keras_capsule_poe.layers.decoders import ConvDecoder, DenseDecoder
from keras_capsule_poe.layers.routing_layer import RoutingLayer
from keras_capsule_poe.layers.self_attention_routing import SelfAttentionRouting
from keras_capsule_poe.losses import MarginLoss
from keras_capsule_poe.models.base import classifier_training as fitting
from keras_capsule_poe.models.base.classifier_baseline import build_control, plain_convolutions
from keras_capsule_poe.models.base.classifier_training import seen_shape
from keras_capsule_poe.models.base.classifiers import ConvClassifier
from keras_capsule_poe.models.base.saved import load_as
from keras_capsule_poe.models.capsnet.model import CapsNet

# Minimum height and width of images in pixels, for each body.
SMALLEST = {"capsules": 17, "efficient": 11, "places": 14}
# Convolutions as (kernel size, filters, stride); in `_PLACES` None is average pooling.
_EFFICIENT = ((5, 32, 1), (3, 64, 1), (3, 64, 1), (3, 128, 2))
_PLACES = ((3, 64), (3, 64), None, (3, 128), (3, 128))


def build_body(net, image_shape, dtype, starts, standardized=False):
    """Return a `keras.Sequential` from images (B, H, W, C) to capsules (B, I, D)."""
    makers = {"capsules": _capsules_body, "efficient": _efficient, "places": _places}
    make = makers[one_of("body", net.body, tuple(makers))]
    fitting.check_size(image_shape, SMALLEST[net.body], f"the body {net.body!r}")
    layers = [Standardize(dtype="float32")] if standardized else []
    return keras.Sequential([*layers, *make(net, image_shape, dtype, starts)], name="primary")


def _capsules_body(net, image_shape, dtype, starts):
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


def build_model(config, image_shape, dtype=None):
    """Return the `CapsNet`, or the baseline `ConvClassifier`, built but not compiled."""
    makers = {"capsules": _capsules, "cnn": _cnn}
    return fitting.build(config, "capsnet", makers, image_shape, dtype)


def _capsules(net, image_shape, view, dtype, starts):
    seen = seen_shape(view, image_shape)
    return CapsNet(
        build_body(net, seen, dtype, starts, standardized=view is not None),
        _routing(net, starts),
        image_shape,
        decoder=_decoder(net, seen, starts),
        margin=MarginLoss(
            absent_weight=net.absent_weight,
            scaling=one_of("loss_reduction", net.loss_reduction, ("sum", "official")),
        ),
        reconstruction_weight=net.reconstruction_weight,
        view=view,
        name="capsnet",
    )


def _cnn(net, image_shape, view, dtype, starts):
    plain = functools.partial(plain_convolutions, net.filters, net.max_pooling)
    own = {"efficient": efficient_convolutions, "places": place_convolutions}
    make = own.get(net.body, plain)
    return build_control(net, image_shape, view, dtype, starts, _capsules, make)


def _routing(net, starts):
    is_uniform = one_of("coefficients", net.coefficients, net.CHOICES["coefficients"]) == "uniform"
    options = {"kernel_initializer": starts.maps(net.initial_stddev), "name": "routing"}
    if net.body == "efficient":
        how = "uniform" if is_uniform else "attention"
        return SelfAttentionRouting(net.classes, net.dim, routing=how, **options)
    return RoutingLayer(
        net.classes,
        net.dim,
        routing_iterations=1 if is_uniform else net.routing_iterations,
        agreement=net.agreement,
        logits=net.logits,
        leaky=net.leaky,
        use_bias=net.use_bias,
        bias_initializer=starts.bias(),
        shared_weights=net.body == "places",
        **options,
    )


def _decoder(net, image_shape, starts):
    if one_of("decoder", net.decoder, ("dense", "conv", "none")) == "none":
        return None
    form = DenseDecoder if net.decoder == "dense" else ConvDecoder
    start = starts.kernels(0.1)
    return form(image_shape, kernel_initializer=start, bias_initializer=starts.bias())


def check(config, image_shape=None):
    """Build every part to validate the settings; see `fitting.check`."""
    fitting.check(config, "capsnet", build_model, image_shape)


def smallest(config):
    """Return the minimum height and width of images in pixels."""
    net = config["capsnet"]
    return fitting.smallest(net, SMALLEST.get(net.body, 0))


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""

    def describe(model, seen):
        primary = model.primary.compute_output_shape((None, *seen))
        shapes = {
            "primary capsules": tuple(primary[1:]),
            "class capsules": (model.capsules, model.dim),
        }
        names = ("primary", "routing", "decoder")
        return shapes, {name: getattr(model, name) for name in names}

    return fitting.outline(config, "capsnet", build_model(config, image_shape), describe)


def capsnet(run):
    """Train the network by the margin loss and the reconstruction error."""
    return fitting.train(run, "capsnet", build_model)


def export(run):
    """Export the network for Keras and as a SavedModel, and draw reconstructions."""
    return fitting.export(run, "capsnet", build_model)


def load(path):
    """Load the `CapsNet` or `ConvClassifier` of a `model.keras`."""
    return load_as((CapsNet, ConvClassifier), path)
