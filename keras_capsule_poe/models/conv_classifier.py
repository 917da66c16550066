"""A convolutional network that names classes: what capsules are compared with."""

import keras
from keras import ops

from keras_capsule_poe.functions.winners import named_rightly, winners
from keras_capsule_poe.models.capsnet import as_layer
from keras_capsule_poe.models.classifier import CapsuleClassifier
from keras_capsule_poe.models.replicas import SharedOutGradients


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvClassifier(SharedOutGradients, CapsuleClassifier, keras.Model):
    """Any network from images to logits of classes, asked and trained as a `CapsNet` is.

    Trained by the cross-entropy of the softmax of its logits. Compile it with an optimizer and no
    loss; it is fitted to images and to labels (B, J) of zeros and ones, of which those of an
    image count equally, or to what else a `CapsNet` takes.

    Args:
        network: Layer or model from images (B, H, W, C) to logits (B, J), or its config.
        image_shape: (H, W, C), of images as they are given to it.
        any_size: bool, whether the network takes images of other heights and widths, too.
        view: See `CapsNet`.
        **kwargs: Base model arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in [0, 1].

    Returns:
        Tensor (B, J), logits.

    Raises:
        ValueError: If a part is no layer.

    Examples:

    >>> import numpy as np
    >>> layers = [keras.layers.Conv2D(4, 5), keras.layers.Flatten(), keras.layers.Dense(3)]
    >>> model = ConvClassifier(keras.Sequential(layers), (8, 8, 1))
    >>> model.build()
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

    def __init__(self, network, image_shape, any_size=False, view=None, **kwargs):
        super().__init__(**kwargs)
        self.network = as_layer("network", network)
        self.view = None if view is None else as_layer("view", view)
        self.image_shape, self.any_size = tuple(image_shape), bool(any_size)
        self.accuracy_tracker = keras.metrics.Mean(name="accuracy")

    def build(self, input_shape=None):
        if self.built:
            return
        # A network that was saved was built as it was loaded.
        if not self.network.built:
            shape = (None, *self.image_shape)
            shape = shape if self.view is None else self.view.compute_output_shape(shape)
            sizes = (None, None) if self.any_size else shape[1:3]
            self.network.build((None, *sizes, shape[3]))
        self.built = True

    def call(self, images, training=None):
        seen = images if self.view is None else self.view(images)
        return self.network(seen, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.check_compiled()
        labels = ops.cast(_whole(y), "float32")
        # An image of no class has no share in the loss, as one of weight zero.
        shares = labels / ops.maximum(ops.sum(labels, axis=-1, keepdims=True), 1)
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        found = self.whole_loss(loss(shares, ops.cast(y_pred, "float32"), sample_weight))
        return found + sum(self.losses) if self.losses else found

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        probabilities = ops.softmax(ops.cast(y_pred, "float32"))
        self.accuracy_tracker.update_state(named_rightly(_whole(y), probabilities))
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def classify(self, images):
        logits = ops.cast(self(images, training=False), "float32")
        return {"probabilities": ops.softmax(logits), "classes": winners(logits)}

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "network": serialize(self.network),
            "view": None if self.view is None else serialize(self.view),
            "image_shape": self.image_shape,
            "any_size": self.any_size,
        }


def _whole(y):
    """Labels (B, J) of whole images, of what a `CapsNet` is fitted to."""
    return y[0] if isinstance(y, (tuple, list)) else y
