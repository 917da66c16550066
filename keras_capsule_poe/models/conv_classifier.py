"""A plain classifier, the baseline for capsule networks."""

import keras
from keras import ops

from keras_capsule_poe.functions.winners import named_rightly, winners
from keras_capsule_poe.models.capsnet import as_layer
from keras_capsule_poe.models.classifier import CapsuleClassifier
from keras_capsule_poe.models.replicas import SharedOutGradients


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvClassifier(SharedOutGradients, CapsuleClassifier, keras.Model):
    """Classifier around any network from images to logits, with the interface of `CapsNet`.

    The loss is the cross-entropy of the softmax. Compile with an optimizer and no loss. Fit on
    images and labels (B, J) of zeros and ones, or on the label tuples of a `CapsNet`. The classes
    of one image have equal target probabilities.

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

    def __init__(self, network, image_shape, any_size=False, view=None, **kwargs):
        super().__init__(**kwargs)
        self.network = as_layer("network", network)
        self.view = None if view is None else as_layer("view", view)
        self.image_shape, self.any_size = tuple(image_shape), bool(any_size)
        self.accuracy_tracker = keras.metrics.Mean(name="accuracy")

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
        seen = images if self.view is None else self.view(images)
        return self.network(seen, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.check_compiled()
        labels = ops.cast(_whole(y), "float32")
        # An image without a class adds zero to the loss.
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
    """Return the labels (B, J) of whole images from labels or a `CapsNet` label tuple."""
    return y[0] if isinstance(y, (tuple, list)) else y
