"""A network of matrix capsules, built from settings, and its training cost."""

import functools
import math

import keras

from keras_capsule_poe.callbacks import SpreadMargin
from keras_capsule_poe.core.numerics import one_of, real_number, share, whole_number
from keras_capsule_poe.errors import in_section
from keras_capsule_poe.former_names import current
from keras_capsule_poe.layers.capsules import Standardize
from keras_capsule_poe.layers.convolutions import FastConv2D
from keras_capsule_poe.layers.decoders import DenseDecoder
from keras_capsule_poe.losses import MarginLoss, SpreadLoss
from keras_capsule_poe.models.base import classifier_training as fitting
from keras_capsule_poe.models.base.classifier_baseline import build_control, plain_convolutions
from keras_capsule_poe.models.base.classifier_training import seen_shape
from keras_capsule_poe.models.base.classifiers import ConvClassifier
from keras_capsule_poe.models.base.saved import load_as
from keras_capsule_poe.models.matrix_capsules.layers import (
    ConvEMCapsules,
    EMCapsules,
    PrimaryMatrixCapsules,
)
from keras_capsule_poe.models.matrix_capsules.model import MatrixCapsNet

# Minimum image size for a stride of two and two layers of 3x3 windows, the first with stride 2.
SMALLEST = 13
# Filters of the baseline. With `net.filters`, its 5x5 convolutions alone would be too large.
CONTROL_FILTERS = 16


def build_model(config, image_shape, dtype=None):
    """Return the `MatrixCapsNet`, or the baseline `ConvClassifier`, built but not compiled."""
    makers = {"capsules": _capsules, "cnn": _cnn}
    return fitting.build(config, "matrix", makers, image_shape, dtype)


def _capsules(net, image_shape, view, dtype, starts):
    seen = seen_shape(view, image_shape)
    fitting.check_size(seen, SMALLEST, "windows of 3x3")
    convolution = FastConv2D(
        net.filters,
        5,
        strides=2,
        padding="same",
        activation="relu",
        kernel_initializer=starts.kernel(0.05),
        bias_initializer=starts.bias(),
        dtype=dtype,
        name="convolution",
    )
    layers = [keras.layers.Input(seen), Standardize(dtype="float32"), convolution]
    return MatrixCapsNet(
        keras.Sequential(layers, name="features"),
        _capsule_layers(net, starts),
        image_shape,
        loss=_loss(net),
        decoder=_decoder(net, seen, starts),
        reconstruction_weight=net.reconstruction_weight,
        view=view,
        name="matrix",
    )


def _capsule_layers(net, starts):
    official = net.initializer == "official"
    primary = PrimaryMatrixCapsules(
        net.primary_types,
        net.size,
        activation_bias=-1.0 if official else 0.0,
        pose_initializer=starts.kernel(0.5),
        activation_initializer=starts.kernel(3.0),
        dtype="float32",
        name="primary_capsules",
    )
    options = {
        "routing": net.routing,
        "schedule": net.schedule,
        "compete": net.compete,
        "damping": net.damping,
        "variance_floor": net.variance_floor,
        "assignment_temperature": net.assignment_temperature,
        "normalize_mass": net.normalize_mass,
        # Variational routing has no costs to scale.
        "activation_scale": net.activation_scale if net.routing == "em" else 1.0,
        **current("MatrixParents", {"implementation": net.implementation}),
        "dtype": "float32",
    }
    temperature = real_number("class_temperature", net.class_temperature, above=0)
    temperature *= net.inverse_temperature

    def more(iterations, stddev, cost, activation, inverse_temperature):
        # In the published code, costs are s (ln 2 pi + 1) + ln variance. Ours are half of that.
        cost = cost * (math.log(2 * math.pi) + 1) / 2 if official else 0.0
        return {
            **options,
            "routing_iterations": iterations,
            "inverse_temperature": inverse_temperature,
            "kernel_initializer": starts.maps(stddev),
            "cost_initializer": keras.initializers.Constant(cost),
            "activation_initializer": keras.initializers.Constant(activation if official else 0.0),
        }

    iterations = inner = whole_number("routing_iterations", net.routing_iterations)
    if net.inner_routing_iterations is not None:
        inner = whole_number("inner_routing_iterations", net.inner_routing_iterations)
    inside = (inner, 0.3, 0.5, 0.5, net.inverse_temperature)
    last = (iterations, 0.01 if official else 0.3, 2.0, 1.0, temperature)
    # Class capsules have one position, so "places" would remove all competition.
    classes = {**more(*last), "compete": "all"}
    return [
        primary,
        ConvEMCapsules(net.types, 3, strides=2, name="first_layer", **more(*inside)),
        ConvEMCapsules(net.last_types, 3, name="second_layer", **more(*inside)),
        EMCapsules(net.classes, coordinates=net.coordinates, name="class_capsules", **classes),
    ]


def _loss(net):
    scaling = one_of("loss_reduction", net.loss_reduction, net.CHOICES["loss_reduction"])
    losses = {
        "spread": lambda: SpreadLoss(net.first_margin, scaling),
        "margin": MarginLoss,
        "cross-entropy": lambda: keras.losses.CategoricalCrossentropy(from_logits=True),
    }
    return losses[one_of("loss", net.loss, net.CHOICES["loss"])]()


def _decoder(net, seen, starts):
    if one_of("decoder", net.decoder, ("none", "dense")) == "none":
        return None
    start = starts.kernels(0.1)
    return DenseDecoder(seen, kernel_initializer=start, bias_initializer=starts.bias())


def _cnn(net, image_shape, view, dtype, starts):
    fitting.check_size(seen_shape(view, image_shape), SMALLEST, "windows of 3x3")
    make = functools.partial(plain_convolutions, CONTROL_FILTERS, net.max_pooling)
    return build_control(net, image_shape, view, dtype, starts, _capsules, make, standardized=True)


def check(config, image_shape=None):
    """Build every part to validate the settings; see `fitting.check`."""
    with in_section("matrix"):
        spread_margin(config, 1)
    fitting.check(config, "matrix", build_model, image_shape)


def spread_margin(config, steps, loss=None):
    """Return the `SpreadMargin` callback for a training of `steps` steps."""
    net = config["matrix"]
    over = whole_number("margin_steps", steps if net.margin_steps is None else net.margin_steps)
    first, last = share("first_margin", net.first_margin), share("last_margin", net.last_margin)
    return SpreadMargin(
        over,
        loss,
        first,
        last,
        one_of("margin_schedule", net.margin_schedule, ("linear", "official")),
    )


def smallest(config):
    """Return the minimum height and width of images in pixels."""
    return fitting.smallest(config["matrix"], SMALLEST)


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""

    def describe(model, seen):
        names = ("primary capsules", "first layer", "second layer", "class capsules")
        shapes = {name: activation[1:] for name, (_, activation) in zip(names, _shapes(model))}
        parts = {"features": model.features, "decoder": model.decoder}
        return shapes, parts | dict(zip(names, model.capsule_layers))

    return fitting.outline(config, "matrix", build_model(config, image_shape), describe)


def _shapes(model):
    """Return the shapes of each capsule layer's poses and activations for one image."""
    shape = model.features.compute_output_shape(
        (1, *seen_shape(model.view, tuple(model.image_shape)))
    )
    found = []
    for layer in model.capsule_layers:
        shape = layer.compute_output_shape(shape)
        found.append(shape)
    return found


def matrix(run):
    """Train the network; the margin of a spread loss grows during training."""

    def callbacks(model, steps):
        loss = getattr(model, "spread", None)
        return [spread_margin(run.config, steps, loss)] if isinstance(loss, SpreadLoss) else []

    return fitting.train(run, "matrix", build_model, callbacks)


def export(run):
    """Export the network for Keras and as a SavedModel, and draw reconstructions."""
    return fitting.export(run, "matrix", build_model)


def load(path):
    """Load the `MatrixCapsNet` or `ConvClassifier` of a `model.keras`."""
    return load_as((MatrixCapsNet, ConvClassifier), path)
