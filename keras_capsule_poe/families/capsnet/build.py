"""A supervised capsule network, built from settings, and its training cost."""

import functools
import math

from keras_capsule_poe.families.capsnet.bodies import (
    SMALLEST,
    build_body,
    efficient_convolutions,
    place_convolutions,
)
from keras_capsule_poe.families.classifiers import fitting, windows
from keras_capsule_poe.families.classifiers.control import build_control, plain_convolutions
from keras_capsule_poe.families.classifiers.starts import Starts
from keras_capsule_poe.families.classifiers.windows import seen_shape, view_of
from keras_capsule_poe.functions.checks import one_of, whole_number
from keras_capsule_poe.functions.convolution import fast_share
from keras_capsule_poe.layers import (
    ConvCapsules,
    ConvDecoder,
    DenseDecoder,
    FastConv2D,
    RoutingLayer,
    SelfAttentionRouting,
)
from keras_capsule_poe.losses import MarginLoss
from keras_capsule_poe.models import CapsNet, ConvClassifier
from keras_capsule_poe.training.precision import policy

# Fraction of the machine's large float32 product rate that a step reached on two cores.
SHARE = 0.5
# Times that three routing iterations read all votes: two agreements and three weighted sums.
ROUTED = 5


def build_model(config, image_shape, dtype=None):
    """Return the `CapsNet`, or the baseline `ConvClassifier`, built but not compiled."""
    net, dtype = config["capsnet"], dtype or policy(config["capsnet"].precision)
    make = _cnn if one_of("network", net.network, net.CHOICES["network"]) == "cnn" else _capsules
    view = view_of(net, image_shape)
    model = make(net, image_shape, view, dtype, Starts(net.initial, config.seed))
    model.build()
    return model


def _capsules(net, image_shape, view, dtype, starts):
    seen = seen_shape(view, image_shape)
    return CapsNet(
        build_body(net, seen, dtype, starts, standardized=view is not None),
        _routing(net, starts),
        image_shape,
        decoder=_decoder(net, seen, starts),
        margin=MarginLoss(absent_weight=net.absent_weight, scaling=net.loss),
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
        iterations=0 if is_uniform else whole_number("iterations", net.iterations) - 1,
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
    return windows.smallest(net, SMALLEST.get(net.body, 0))


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""
    model = build_model(config, image_shape)
    if isinstance(model, ConvClassifier):
        shapes = {"image": tuple(image_shape), "classes": (config["capsnet"].classes,)}
        return shapes, {"network": model.count_params()}
    seen = seen_shape(model.view, tuple(image_shape))
    primary = model.primary.compute_output_shape((None, *seen))
    shapes = {
        "image": tuple(image_shape),
        **({} if model.view is None else {"window": seen}),
        "primary capsules": tuple(primary[1:]),
        "class capsules": (model.capsules, model.dim),
    }
    parts = {"primary": model.primary, "routing": model.routing, "decoder": model.decoder}
    return shapes, {name: part.count_params() for name, part in parts.items() if part is not None}


def cost(config, image_shape, images, held_out):
    """Return the `Cost` of the training."""
    model = build_model(config, image_shape)
    return fitting.cost(config["capsnet"], images, model.count_params(), *_sizes(model), SHARE)


def _sizes(model):
    """Return the multiplications and the number of activations of one image's forward pass."""
    seen = seen_shape(model.view, model.image_shape)
    if isinstance(model, ConvClassifier):
        _, products, numbers = _forward(model.network, seen)
        return products, numbers
    shape, products, numbers = _forward(model.primary, seen)
    inputs, (_, outputs, out_dim, in_dim) = shape[1], model.routing.kernel.shape
    products += ROUTED * inputs * outputs * out_dim * in_dim
    if model.decoder is not None:
        products += model.decoder.count_params()
    return products, numbers


def _forward(network, image_shape):
    """Return a network's output shape (1, ...), multiplications and activations for one image."""
    shape, products, numbers = (1, *image_shape), 0, 0
    for layer in network.layers:
        seen, shape = shape, layer.compute_output_shape(shape)
        numbers += math.prod(shape)
        kernel = getattr(layer, "kernel", None)
        if kernel is not None:
            is_cut = isinstance(layer, ConvCapsules)
            places = shape[1] // layer.types if is_cut else math.prod(shape[1:-1])
            share = _share(layer, seen)
            products += round(share * places * math.prod(kernel.shape))
    return shape, products, numbers


def _share(layer, shape):
    """Return a layer's training cost as a fraction of its plain multiplications."""
    if not isinstance(layer, (ConvCapsules, FastConv2D)):
        return 1.0
    strides = layer.strides if isinstance(layer, ConvCapsules) else layer.strides[0]
    dtype = layer.compute_dtype
    return fast_share(shape[1:3], layer.kernel.shape, strides, layer.padding, dtype)
