"""The control of any recipe: a convolutional network of as many parameters, without capsules."""

import math

import keras

from keras_capsule_poe.families.classifiers.starts import Starts
from keras_capsule_poe.families.classifiers.windows import seen_shape
from keras_capsule_poe.functions.checks import real_number, whole_number
from keras_capsule_poe.layers import BatchDropout, FastConv2D, Standardize
from keras_capsule_poe.models import ConvClassifier

# The second hidden layer of the network that Sabour et al. compare theirs with.
LAST_UNITS = 192


def build_control(
    net, image_shape, view, dtype, starts, capsules, convolutions, standardized=False
):
    """A `ConvClassifier`: convolutions, then two hidden layers with dropout after the second.

    The first hidden layer has as many units as bring the whole nearest to the parameters of the
    network of capsules, where the settings do not say it.

    Args:
        net: `ClassifierSection`.
        image_shape: (H, W, C).
        view: See `windows.view_of`.
        dtype: Policy of the convolutions.
        starts: `Starts`.
        capsules: Function of the other arguments, before this one, to the network of capsules.
        convolutions: Function of a policy and `Starts` to a list of layers.
        standardized: bool, whether each image is standardised first; windows always are.

    Raises:
        ValueError: If a setting is out of range.
    """
    seen, parameters = seen_shape(view, image_shape), 0
    if net.units is None:
        counted = capsules(net, seen, None, dtype, Starts(net.initial, 0))
        counted.build()
        parameters = trained(counted)
    layers = [Standardize(dtype="float32")] if standardized or view is not None else []
    layers += convolutions(dtype, starts)
    network = _network(net, seen, parameters, dtype, starts, layers)
    return ConvClassifier(network, image_shape, net.global_pooling, view, name="cnn")


def _network(net, image_shape, parameters, dtype, starts, layers):
    dropout = real_number("dropout", net.dropout)
    if not 0 <= dropout < 1:
        raise ValueError(f"`dropout` must lie in [0, 1). Received: dropout={net.dropout}")
    pooled = keras.layers.GlobalAveragePooling2D if net.global_pooling else keras.layers.Flatten
    body = keras.Sequential([*layers, pooled(dtype="float32")], name="convolutions")
    body.build((None, *image_shape))
    units = net.units
    if units is None:
        left = parameters - trained(body) - LAST_UNITS - (LAST_UNITS + 1) * net.classes
        units = max(1, round(left / (body.output_shape[-1] + 1 + LAST_UNITS)))
    # Anew: a network of images of any size is not one that was built for these.
    return keras.Sequential(
        [
            *layers,
            pooled(dtype="float32"),
            _dense(whole_number("units", units), starts, dtype),
            _dense(LAST_UNITS, starts, dtype),
            BatchDropout(dropout, seed=starts.seed, dtype="float32"),
            keras.layers.Dense(
                net.classes, kernel_initializer=starts.kernel(0.1), dtype="float32", name="logits"
            ),
        ],
        name="network",
    )


def trained(model):
    """How many numbers of a model are trained."""
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def plain_convolutions(filters, max_pooling, dtype, starts):
    """The convolutions that Sabour et al. compare with; maximum pooling as theirs on affNIST."""
    layers, filters = [], whole_number("filters", filters)
    for k, number in enumerate((filters, filters, max(1, filters // 2))):
        start = starts.kernel(0.05)
        layers.append(
            FastConv2D(
                number,
                5,
                padding="same",
                activation="relu",
                kernel_initializer=start,
                dtype=dtype,
            )
        )
        if max_pooling and k < 2:
            layers.append(keras.layers.MaxPooling2D(2, dtype=dtype))
    return layers


def _dense(units, starts, dtype):
    return keras.layers.Dense(
        units, activation="relu", kernel_initializer=starts.kernel(0.1), dtype=dtype
    )
