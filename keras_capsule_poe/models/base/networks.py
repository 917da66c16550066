"""What networks of classifiers share: initial weights, optimizers, augmentation, the baseline."""

import math

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.data import stream
from keras_capsule_poe.data.augmentation import cifar, efficient, flip, norb, shift
from keras_capsule_poe.data.streams import AHEAD
from keras_capsule_poe.layers.capsules import BatchDropout
from keras_capsule_poe.layers.convolutions import FastConv2D
from keras_capsule_poe.models.base.supervised import ConvClassifier
from keras_capsule_poe.training.optimizers import AveragedAdam, AveragedMuon, ConvolutionMuon

# Lower bound on the learning rate.
LEAST_RATE = 1e-6
# Units of the second dense layer in the baseline of Sabour et al.
LAST_UNITS = 192
# Windows have 255 grey levels as 1 here; the network standardizes them.
AUGMENTATIONS = {
    "none": None,
    "shift": shift,
    "efficient": efficient,
    "flip": flip,
    "cifar": lambda images, random: cifar(images, random, standardized=False) / 255,
    "norb": lambda images, random: norb(images, random, standardized=False) / 255,
}


class Starts:
    """Initializers of a network's layers, each with a new seed."""

    def __init__(self, kind, seed):
        self.kind, self.seed = kind, seed

    def kernel(self, stddev):
        """Return a filter initializer; only the kind "official" uses `stddev`."""
        self.seed += 1
        if self.kind == "official":
            return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)
        known = {"glorot": keras.initializers.GlorotUniform, "he": keras.initializers.HeNormal}
        return known[self.kind](seed=self.seed)

    def bias(self):
        return keras.initializers.Constant(0.1 if self.kind == "official" else 0.0)

    def maps(self, stddev):
        """Return an initializer of prediction maps."""
        # Keras' fan-in rules do not fit their four axes.
        self.seed += 1
        return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)

    def decoder(self, form, image_shape):
        """Return a decoder of a class, or None."""
        if form is None:
            return None
        start = self.kernel(0.1)
        # Without a seed, since several layers share it.
        start = type(start).from_config({**start.get_config(), "seed": None})
        return form(image_shape, kernel_initializer=start, bias_initializer=self.bias())


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FlooredDecay(keras.optimizers.schedules.ExponentialDecay):
    """Keras' `ExponentialDecay` with a lower bound `least`."""

    def __init__(self, initial_learning_rate, decay_steps, decay_rate, least=0.0, **kwargs):
        super().__init__(initial_learning_rate, decay_steps, decay_rate, **kwargs)
        self.least = least

    def __call__(self, step):
        return ops.maximum(super().__call__(step), self.least)

    def get_config(self):
        return {**super().get_config(), "least": self.least}


def learning_rate(net, images):
    """Return the learning-rate schedule of a `ClassifierPart` for a number of images."""
    first, (epochs, steps) = net.first_rate, net.schedule.over(images)
    if net.learning_rate_schedule == "cosine":
        least = min(LEAST_RATE, first) / first
        return keras.optimizers.schedules.CosineDecay(first, epochs * steps, alpha=least)
    if net.decay_steps is None:
        return FlooredDecay(first, steps, net.decay_rate, first / 10)
    return FlooredDecay(first, net.decay_steps, net.decay_rate, min(LEAST_RATE, first))


def optimizer(net, images):
    """Return Adam or Muon with a learning-rate schedule, and a weight average if set."""
    made = {"adam": (keras.optimizers.Adam, AveragedAdam), "muon": (ConvolutionMuon, AveragedMuon)}
    plain, averaging = made[net.optimizer]
    rate = learning_rate(net, images)
    if net.ema_momentum is None:
        return plain(rate, epsilon=1e-8)
    return averaging(rate, epsilon=1e-8, use_ema=True, ema_momentum=net.ema_momentum)


def plain_convolutions(filters, is_pooled, dtype, starts):
    """Return the baseline convolutions of Sabour et al., with max pooling if set."""
    layers = []
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
        if is_pooled and k < 2:
            layers.append(keras.layers.MaxPooling2D(2, dtype=dtype))
    return layers


def examples(images, classes, **order):
    """Return a `tf.data.Dataset` of images (B, H, W, C) and multi-hot labels (B, J)."""
    import tensorflow as tf

    names = ("images", "labels", "targets") if has_targets(images) else ("images", "labels")

    # With targets, the labels are (labels, targets (B, T, H, W, C), part labels (B, T, J)).
    # Such images must not be augmented: they would no longer match their targets.
    def hot(pixels, labels, *targets):
        parts = tf.one_hot(labels, classes)
        whole = parts if labels.shape.rank == 1 else tf.reduce_max(parts, axis=1)
        return pixels, (whole, *targets, parts) if targets else whole

    return stream(images, names, **order).map(hot, AHEAD)


def has_targets(images):
    """Return whether the set has each part of an image separately, as MultiMNIST has."""
    return "targets" in images.epoch(0, 0)(np.arange(1))


def parameters(model):
    """Return the number of trainable parameters of a model."""
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def seen_shape(view, image_shape):
    """Return the shape of the image window that the network receives."""
    return image_shape if view is None else (view.height, view.width, image_shape[2])


def baseline(kind, settings, image_shape, view, dtype, starts):
    """Return the baseline of a class: convolutions, then two dense layers with dropout."""
    net, seen, wanted = settings.net, seen_shape(view, image_shape), 0
    # By default, the first dense layer makes up for the parameters of the capsule network.
    if net.units is None:
        counted = kind.network(settings, seen, None, dtype, Starts(net.initializer, 0))
        counted.build()
        wanted = parameters(counted)
    layers = kind.baseline_layers(net, view, dtype, starts)
    body = keras.Sequential(layers, name="convolutions")
    body.build((None, *seen))
    units = net.units
    if units is None:
        left = wanted - parameters(body) - LAST_UNITS - (LAST_UNITS + 1) * net.classes
        units = max(1, round(left / (body.output_shape[-1] + 1 + LAST_UNITS)))

    def dense(units, **options):
        start = starts.kernel(0.1)
        return keras.layers.Dense(units, kernel_initializer=start, **options)

    # Reuse the layers in a new model: `body` is built for this image size only.
    layers = [*layers, dense(units, activation="relu", dtype=dtype)]
    layers.append(dense(LAST_UNITS, activation="relu", dtype=dtype))
    layers.append(BatchDropout(0.5, seed=starts.seed, dtype="float32"))
    layers.append(dense(net.classes, dtype="float32", name="logits"))
    network = keras.Sequential(layers, name="network")
    is_any_size = isinstance(layers[-5], keras.layers.GlobalAveragePooling2D)
    return ConvClassifier(network, image_shape, is_any_size, view, name="cnn")
