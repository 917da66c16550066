"""Classifiers whose class capsules are decoded to images."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Serializable, Tensor
from keras_capsule_poe.core.numerics import real_number
from keras_capsule_poe.core.routing import winners
from keras_capsule_poe.layers.capsules import CapsuleMask
from keras_capsule_poe.metrics import weights_of_images
from keras_capsule_poe.models.base.protocols import deserialized
from keras_capsule_poe.models.base.supervised import (
    AT_ONCE,
    ClassAccuracy,
    Supervised,
    class_labels,
)

# Values per dimension in a traversal: -0.25 to 0.25 in steps of 0.05, as in the paper.
STEPS = 11


class DecodedClassifier(Supervised):
    """Mixin for classifiers trained by a class loss and the error of decoded images."""

    # A subclass sets view, capsules and dim, and calls `set_decoder`.
    # A traversal zeroes all other capsules and adds up to SPAN to one value.
    CODES, SPAN = "alone", 0.25
    SHARED = {"encode": ("images",)}
    LOSS = "class_loss"

    def found(self, outputs):
        """Return capsules (B, J, E) and probabilities (B, J) from the outputs of `call`."""
        raise NotImplementedError

    def class_loss(self, labels, probabilities, sample_weight=None):
        """Return the scalar loss of probabilities (B, J) for labels (B, J)."""
        raise NotImplementedError

    def set_decoder(self, decoder, image_shape, reconstruction_weight):
        """Set these attributes from arguments, and create the mask and the metrics."""
        self.decoder = as_layer("decoder", decoder, optional=True)
        self.set_image_shape(image_shape)
        self.reconstruction_weight = real_number("reconstruction_weight", reconstruction_weight)
        self.mask = CapsuleMask(dtype="float32")
        self.accuracy_tracker = ClassAccuracy(name="accuracy")
        self.loss_of_classes = keras.metrics.Mean(name=self.LOSS)
        if self.decoder is not None:
            self.error_tracker = keras.metrics.Mean(name="squared_error")

    @property
    def ENDPOINTS(self):
        """SavedModel endpoints; those that return images need a decoder."""
        names = ("classify", "encode")
        more = () if self.decoder is None else ("reconstruct", "traverse")
        return {name: ("images",) for name in (*names, *more)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.check_compiled()
        capsules, probabilities = self.found(y_pred)
        labels, targets, parts = _parted(x, y, probabilities)
        loss = self.whole_loss(self.class_loss(labels, probabilities, sample_weight))
        number = ops.shape(labels)[0]
        self.loss_of_classes.update_state(loss, number)
        if self.decoder is not None:
            error = 0.0
            for part in range(targets.shape[1]):
                images = self.decoder(self.mask(capsules, parts[:, part]), training=training)
                target = self._seen(targets[:, part])
                gap = ops.cast(images, "float32") - ops.cast(target, "float32")
                squared = ops.sum(ops.square(gap), axis=(1, 2, 3))
                error = error + ops.mean(weights_of_images(sample_weight, "float32") * squared)
            self.error_tracker.update_state(error, number)
            loss = loss + self.reconstruction_weight * error
        return loss + sum(self.losses) if self.losses else loss

    def class_probabilities(self, outputs):
        return self.found(outputs)[1]

    def encode(self: Any, images: Tensor) -> dict[str, Tensor]:
        """Return a dict with class `capsules` (B, J, E) and their `probabilities` (B, J)."""

        def encoded(images):
            capsules, probabilities = self.found(self(images, training=False))
            return {"capsules": capsules, "probabilities": probabilities}

        return self.in_parts(encoded, images)

    def classify(self, images: Tensor) -> dict[str, Tensor]:
        """Return class `probabilities` (B, J) and the most probable of `classes` (B,), a dict."""
        probabilities = self.encode(images)["probabilities"]
        return {"probabilities": probabilities, "classes": winners(probabilities)}

    def render(self, capsules: Tensor) -> dict[str, Tensor]:
        """Return a dict with the `images` (B, H, W, C) decoded from capsules (B, J, E)."""
        return {"images": ops.cast(self._decoder(capsules, training=False), "float32")}

    def reconstruct(self: Any, images: Tensor) -> dict[str, Tensor]:
        """Decode each image from its most probable capsule alone."""

        def reconstructed(images):
            capsules, classes = self._most_probable(images)
            return self.render(self.mask(capsules, ops.one_hot(classes, self.capsules)))

        return self.in_parts(reconstructed, images)

    def _most_probable(self, images):
        """Return capsules (B, J, E) and the index (B,) of the most probable one."""
        encoded = self.encode(images)
        return encoded["capsules"], winners(encoded["probabilities"])

    def reconstructions(self, images):
        """Return the pair (decoded, original) of images as `longest_capsule`."""
        return {"longest_capsule": (self.reconstruct(images)["images"], self._seen(images))}

    def traverse(self, images):
        """Vary each dimension of each image's most probable capsule, as Sabour et al. (Figure 4).

        Returns:
            Dict with the decoded `images` (B, E, 11, H, W, C), one row per dimension, offset by
            -0.25 to 0.25, and `classes` (B,), the index of the capsule.
        """
        # Each image gives an image for each step of each dimension.
        return self.in_parts(self._traversed, images, max(1, AT_ONCE // (self.dim * STEPS)))

    def _traversed(self, images):
        (capsules, chosen), dim = self._most_probable(images), self.dim
        moves = np.linspace(-self.SPAN, self.SPAN, STEPS, dtype="float32")
        moves = ops.convert_to_tensor(np.eye(dim, dtype="float32")[:, None] * moves[:, None])
        moved = capsules[:, None, None] + moves[None, :, :, None]
        codes = self.mask(
            ops.reshape(moved, (-1, self.capsules, dim)),
            ops.repeat(ops.one_hot(chosen, self.capsules), dim * STEPS, axis=0),
        )
        shown = self.render(codes)["images"]
        shape = (-1, dim, STEPS, *shown.shape[1:])
        return {"images": ops.reshape(shown, shape), "classes": chosen}

    def get_config(self):
        return {
            **super().get_config(),
            "image_shape": self.image_shape,
            "decoder": keras.saving.serialize_keras_object(self.decoder),
            "reconstruction_weight": self.reconstruction_weight,
            "view": keras.saving.serialize_keras_object(self.view),
        }

    def _seen(self, images):
        images = self.pixels(images)
        return images if self.view is None else self.view(images)

    @property
    def _decoder(self):
        if self.decoder is None:
            raise ValueError("A network without a decoder makes no images. Received: decoder=None")
        return self.decoder


def _parted(x, y, probabilities):
    """Return labels (B, J), targets (B, T, H, W, C) and labels (B, T, J) of the parts."""
    labels = class_labels(y, probabilities)
    if isinstance(y, (tuple, list)):
        return labels, *y[1:]
    return labels, ops.convert_to_tensor(x)[:, None], labels[:, None]


def as_layer(name, value, optional=False):
    """Return a Keras layer, deserialized if `value` is a config, or None if it is `optional`."""
    value = deserialized(value)
    if not (isinstance(value, keras.layers.Layer) or (optional and value is None)):
        raise ValueError(f"`{name}` must be a Keras layer. Received: {name}={value!r}")
    return value


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvClassifier(Supervised, keras.Model):
    """Classifier around any network from images to logits, with the interface of `CapsNet`.

    The loss is the cross-entropy of the softmax. Compile with an optimizer and no loss. Fit on
    images and labels, integers (B,) or zeros and ones (B, J), or on the label tuples of a
    `CapsNet`. The classes of one image have equal target probabilities. `predict` returns class
    probabilities (B, J).

    Args:
        network: Layer or model from images (B, H, W, C) to logits (B, J), or its config.
        image_shape: Tuple (H, W, C), before `view`.
        any_size: Boolean, whether the network accepts images of other sizes.
        view: Layer that crops images, or its config, or None. See `CapsNet`.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, J), the logits.

    Raises:
        ValueError: If `network` or `view` is not a layer.

    Example:

    >>> layers = [keras.layers.Conv2D(4, 5), keras.layers.Flatten(), keras.layers.Dense(3)]
    >>> model = ConvClassifier(keras.Sequential(layers), (8, 8, 1))
    >>> model.compile("adam", jit_compile=False)
    >>> images, labels = np.ones((6, 8, 8, 1), "float32"), np.eye(3)[[0, 1, 2, 0, 1, 2]]
    >>> history = model.fit(images, labels, verbose=0)
    >>> sorted(history.history)
    ['accuracy', 'loss']
    >>> model.classify(images)["probabilities"].shape
    TensorShape([6, 3])
    """

    TITLE = "Convolutional network"
    MEASURE = "probability"
    ENDPOINTS = {"classify": ("images",)}

    def __init__(
        self,
        network: Serializable,
        image_shape: tuple[int, int, int],
        any_size: bool = False,
        view: Serializable | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.network = as_layer("network", network)
        self.view = as_layer("view", view, optional=True)
        self.set_image_shape(image_shape)
        self.any_size = bool(any_size)
        self.accuracy_tracker = ClassAccuracy(name="accuracy")

    def build(self, input_shape=None):
        if self.built:
            return
        # Loading has already built a saved network.
        if not self.network.built:
            shape = (None, *self.image_shape)
            shape = shape if self.view is None else self.view.compute_output_shape(shape)
            sizes = (None, None) if self.any_size else shape[1:3]
            self.network.build((None, *sizes, shape[3]))
        self.built = True

    def call(self, images, training=None):
        images = self.pixels(images)
        seen = images if self.view is None else self.view(images)
        return self.network(seen, training=training)

    @property
    def classes(self):
        """Number of classes J."""
        shape = (None, *self.image_shape)
        shape = shape if self.view is None else self.view.compute_output_shape(shape)
        return self.network.compute_output_shape(shape)[-1]

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.check_compiled()
        labels = ops.cast(class_labels(y, y_pred), "float32")
        # An image without a class adds zero to the loss.
        shares = labels / ops.maximum(ops.sum(labels, axis=-1, keepdims=True), 1)
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        if sample_weight is not None:
            sample_weight = weights_of_images(sample_weight, "float32")
        found = self.whole_loss(loss(shares, ops.cast(y_pred, "float32"), sample_weight))
        return found + sum(self.losses) if self.losses else found

    def class_probabilities(self, outputs):
        # Keras warns about a softmax over one value.
        logits = ops.cast(outputs, "float32")
        return ops.softmax(logits) if logits.shape[-1] != 1 else ops.ones_like(logits)

    def classify(self, images: Tensor) -> dict[str, Tensor]:
        """Return class `probabilities` (B, J) and the most probable of `classes` (B,), a dict."""

        def classified(images):
            logits = ops.cast(self(images, training=False), "float32")
            return {"probabilities": self.class_probabilities(logits), "classes": winners(logits)}

        return self.in_parts(classified, images)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "network": serialize(self.network),
            "view": serialize(self.view),
            "image_shape": self.image_shape,
            "any_size": self.any_size,
        }
