"""Baseline of every preset: a convolutional network without capsules, of equal size."""

import math

import keras

from keras_capsule_poe.core.numerics import real_number, whole_number
from keras_capsule_poe.layers.capsules import BatchDropout, Standardize
from keras_capsule_poe.layers.convolutions import FastConv2D
from keras_capsule_poe.models.base.classifier_training import Starts, seen_shape
from keras_capsule_poe.models.base.classifiers import ConvClassifier

# Units of the second dense layer in the baseline of Sabour et al.
LAST_UNITS = 192


def build_control(
    net, image_shape, view, dtype, starts, capsules, convolutions, standardized=False
):
    """Return the baseline: convolutions, then two dense layers with dropout."""
    seen, parameters = seen_shape(view, image_shape), 0
    # By default, the first dense layer makes up for the parameters of the capsule network.
    if net.units is None:
        counted = capsules(net, seen, None, dtype, Starts(net.initializer, 0))
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
    # Reuse the layers in a new model: `body` is built for this image size only.
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
    """Return the number of trainable parameters of a model."""
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def plain_convolutions(filters, max_pooling, dtype, starts):
    """Return the baseline convolutions of Sabour et al., with max pooling if set."""
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
