"""A supervised capsule network from its settings, and what it would take."""

import math

import keras

from keras_capsule_poe.errors import in_section
from keras_capsule_poe.families.capsnet.bodies import SMALLEST, Starts, build_body
from keras_capsule_poe.families.capsnet.control import build_control, trained
from keras_capsule_poe.families.classifiers import windows
from keras_capsule_poe.families.classifiers.rates import falling
from keras_capsule_poe.families.classifiers.windows import augmentation, seen_shape, view_of
from keras_capsule_poe.functions.checks import one_of, real_number, whole_number
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
from keras_capsule_poe.training.family import Cost
from keras_capsule_poe.training.precision import policy
from keras_capsule_poe.training.schedule import Schedule

# Share of the machine's large float32 product rate that a step was seen to reach on two cores.
SHARE = 0.5
BYTES = 4
# Passes over all votes in one pass forward, of three iterations: two agreements, three sums.
ROUTED = 5


def build_model(config, image_shape, dtype=None):
    """The `CapsNet`, or `ConvClassifier`, of a configuration, built but not compiled.

    Args:
        config: `RunConfig`.
        image_shape: (H, W, C).
        dtype: Policy of the convolutions; None: that of the settings.

    Raises:
        ValueError: If a setting cannot be.
    """
    net, dtype = config["capsnet"], dtype or policy(config["capsnet"].precision)
    make = _cnn if one_of("network", net.network, ("capsules", "cnn")) == "cnn" else _capsules
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
    seen, parameters = seen_shape(view, image_shape), 0
    if net.units is None:
        capsules = _capsules(net, seen, None, dtype, Starts(net.initial, 0))
        capsules.build()
        parameters = trained(capsules)
    is_standardized = view is not None
    network = build_control(net, seen, parameters, dtype, starts, is_standardized, net.body)
    return ConvClassifier(network, image_shape, net.global_pooling, view, name="cnn")


def _routing(net, starts):
    is_uniform = one_of("coefficients", net.coefficients, ("routed", "uniform")) == "uniform"
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
    # Without a seed of its own, so that its layers start from different numbers.
    start = starts.kernel(0.1)
    start = type(start).from_config({**start.get_config(), "seed": None})
    return form(image_shape, kernel_initializer=start, bias_initializer=starts.bias())


def schedule(config):
    """The `Schedule` of the training."""
    net = config["capsnet"]
    return Schedule(net.epochs, net.steps, net.batch_size)


def optimizer(config, images):
    """Adam with a falling rate, for so many training images."""
    rate = falling(config["capsnet"], *schedule(config).over(images))
    return keras.optimizers.Adam(rate, epsilon=1e-8)


def check(config, image_shape=None):
    """Builds every part, so that its constructor says what it cannot be.

    Args:
        config: `RunConfig`.
        image_shape: (H, W, C), or None for one that always fits.

    Raises:
        ConfigError: That names the section.
    """
    net = config["capsnet"]
    with in_section("capsnet"):
        augmentation(net)
        optimizer(config, images=1)
        side = windows.fitting_side(net)
        build_model(config, image_shape or (side, side, 1))
        wanted = net.until_accuracy
        if wanted is not None and not 0 < real_number("until_accuracy", wanted) <= 1:
            raise ValueError(f"`until_accuracy` must lie in (0, 1]. Received: {wanted}")


def smallest(config):
    """The least height and width of images, in pixels."""
    net = config["capsnet"]
    return windows.smallest(net, SMALLEST.get(net.body, 0))


def outline(config, image_shape):
    """Shapes and numbers of parameters, two dicts, for people to read."""
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
    """The `Cost` of the training."""
    model = build_model(config, image_shape)
    epochs, steps = schedule(config).over(images)
    products, numbers = _sizes(model)
    batch = config["capsnet"].batch_size
    return Cost(
        # Forward, and the gradients in the inputs and in the weights.
        flops=6.0 * products * images * epochs,
        share=SHARE,
        epochs=epochs,
        steps=epochs * steps,
        # Weights, their gradients and Adam's two moments; what each layer gives and its gradient.
        memory=BYTES * (4 * model.count_params() + 2 * batch * numbers),
    )


def _sizes(model):
    """Multiplications of one image forward, and numbers that the layers give."""
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
    """The shape (1, ...) of what one image becomes, and the two numbers of `_sizes`."""
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
    """What a layer takes in training, as a share of its plain multiplications."""
    is_fast = isinstance(layer, (ConvCapsules, FastConv2D)) and layer.compute_dtype == "float32"
    if not is_fast:
        return 1.0
    strides = layer.strides if isinstance(layer, ConvCapsules) else layer.strides[0]
    return fast_share(shape[1:3], layer.kernel.shape, strides, layer.padding)
