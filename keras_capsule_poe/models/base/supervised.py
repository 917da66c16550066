"""Classifiers by the conventions of Keras: labels, metrics, predictions, and `ConvClassifier`."""

import contextlib
import functools
import inspect
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.arguments import Configured, image_shape_given
from keras_capsule_poe.core.labels import named_rightly, winners
from keras_capsule_poe.data.arrays import number_array
from keras_capsule_poe.data.labels import class_rows
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.keras_private import (
    Exportable,
    LargerIsBetter,
    compiled_metrics,
    validates_in_fit,
)
from keras_capsule_poe.metrics import weights_of_images
from keras_capsule_poe.models.base import inputs
from keras_capsule_poe.models.base.protocols import (
    CapsuleClassifier,
    deserialized,
    is_numpy,
    need_tensor,
)
from keras_capsule_poe.models.base.sharing import SharedOutGradients

# Images that `classify` and `encode` take at once.
AT_ONCE = 500
# Metrics of integer labels, by their names in `compile`.
_SPARSE = {
    "sparse_categorical_accuracy": "SparseCategoricalAccuracy",
    "sparse_top_k_categorical_accuracy": "SparseTopKCategoricalAccuracy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
}


class ClassAccuracy(LargerIsBetter):
    """Mean of `named_rightly`."""


class Supervised(Exportable, SharedOutGradients, CapsuleClassifier):
    """Mixin for classifiers that are fitted on images and labels with a loss of their own.

    Labels are integers (B,) or (B, 1), or rows (B, J) of zeros and ones or of shares in [0, 1].
    Metrics receive rows and class probabilities, and `predict` returns the latter.
    """

    # Until the shape of the images is known.
    image_shape: tuple[Any, Any, Any] = (None, None, None)

    def class_probabilities(self, outputs):
        """Return probabilities (B, J), at least float32, from the outputs of `call`."""
        raise NotImplementedError

    @property
    def batch_shape(self):
        """Shape of a batch of images, None where any size fits."""
        sizes = (None, None) if getattr(self, "any_size", False) else self.image_shape[:2]
        return (None, *sizes, self.image_shape[2])

    def set_image_shape(self, image_shape):
        """Set the image shape; raise `ValueError` unless it has three sizes."""
        self.image_shape = image_shape_given("image_shape", image_shape)

    def pixels(self, images):
        """Return images (B, H, W, C) as pixels in [0, 1]; bytes of dtype uint8 are divided."""
        self._check_images(images, "images")
        if keras.backend.standardize_dtype(images.dtype) != "uint8":
            return images
        return ops.cast(ops.cast(images, "float32") / 255, self.compute_dtype)

    def _check_images(self, images, name="x"):
        if not inputs.has_rank(images):
            return
        shape, wanted = tuple(images.shape), self.batch_shape
        # A view crops images of several sizes to one.
        wanted = wanted if self.view is None else (None, None, None, wanted[3])
        fits = len(shape) == 4 and all(
            None in pair or pair[0] == pair[1] for pair in zip(shape, wanted)
        )
        if not fits:
            sizes = ", ".join("any" if size is None else str(size) for size in wanted[1:])
            raise BadUse(
                f"`{name}` must be images (batch, {sizes}): batch, height, width, channels. "
                f"Received: shape {shape}"
            )

    # Metrics

    def compile(
        self, optimizer="rmsprop", loss=None, loss_weights=None, metrics=None,
        weighted_metrics=None, jit_compile="auto", **kwargs,
    ):  # fmt: skip
        """Configure training, see `keras.Model.compile`. The model has a loss and an accuracy.

        Metrics, given by name or as objects, receive labels (B, J) and probabilities (B, J).
        """
        on_tensorflow = keras.backend.backend() == "tensorflow"
        super().compile(
            optimizer,
            loss,
            loss_weights,
            metrics=self._metrics_of(metrics),
            weighted_metrics=self._metrics_of(weighted_metrics, "weighted_"),
            # XLA makes convolutions several times slower on a processor.
            jit_compile=False if on_tensorflow and jit_compile == "auto" else jit_compile,
            **kwargs,
        )

    def compile_from_config(self, config):
        # As in Keras, which does it for its own `compile` alone.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def _metrics_of(self, metrics, prefix=""):
        """Return metrics of zeros and ones, without the accuracy that the model has."""
        if metrics is None:
            return None
        trackers = {key: each for key, each in vars(self).items() if not key.startswith("_")}
        own = {each.name for each in trackers.values() if isinstance(each, keras.metrics.Metric)}
        own.add("loss")
        found = []
        for metric in keras.tree.flatten(metrics):
            if metric == "accuracy":
                if prefix:
                    found.append(keras.metrics.CategoricalAccuracy(f"{prefix}accuracy"))
                continue
            metric = _of_shares(metric)
            if getattr(metric, "name", metric) in own:
                raise ValueError(
                    f"`metrics` must have other names than those of the model, "
                    f"{', '.join(sorted(own))}. Received: {metric!r}"
                )
            found.append(metric)
        return found or None

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        probabilities = self.class_probabilities(y_pred)
        labels = class_labels(y, probabilities)
        self.accuracy_tracker.update_state(named_rightly(labels, probabilities))
        if sample_weight is not None:
            sample_weight = weights_of_images(sample_weight, probabilities.dtype)
        return super().compute_metrics(x, labels, probabilities, sample_weight)

    def predict_step(self, *arguments):
        found = super().predict_step(*arguments)
        if keras.backend.backend() == "jax":
            outputs, state = found
            return self.class_probabilities(outputs), state
        return self.class_probabilities(found)

    # Inputs

    def fit(self: Any, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train as `keras.Model.fit` on images and labels.

        Args:
            x: Images (N, H, W, C), pixels in `[0, 1]` or bytes of dtype uint8; or a
                `tf.data.Dataset`, `PyDataset` or generator of batches with labels.
            y: Integers (N,) or (N, 1) from 0 on; or rows (N, J) in [0, 1], zeros and ones,
                smoothed or mixed; or a label tuple. The accuracy takes the largest of a row.
            *args: Further arguments of `keras.Model.fit`.
            **kwargs: Further arguments of `keras.Model.fit`.

        Returns:
            `keras.callbacks.History`.

        Raises:
            ValueError: If labels are missing or images have wrong shapes or values.
        """
        x, y, options = self._options("fit", x, y, args, kwargs)
        given = options.get("validation_data")
        if isinstance(given, (tuple, list)):
            images, labels, *weights = given
            row = [inputs.in_a_row(each) for each in weights]
            options["validation_data"] = (*self._begin(images, labels), *row)
        elif given is not None:
            options["validation_data"] = self._begin(given)[0]
        with inputs.plain_errors(bytes_too=True):
            return super().fit(x, y, **options)  # type: ignore[misc]

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """Evaluate as `keras.Model.evaluate`, on the data of `fit`."""
        # `fit` has checked its validation data once.
        if validates_in_fit(kwargs):
            return super().evaluate(x, y, *args, **kwargs)
        x, y, options = self._options("evaluate", x, y, args, kwargs)
        with inputs.plain_errors(bytes_too=True):
            return super().evaluate(x, y, **options)

    def _options(self, method, x, y, args, kwargs):
        """Return checked data, and all other arguments of a method of Keras by name."""
        names = list(inspect.signature(getattr(keras.Model, method)).parameters)[3:]
        options = {**dict(zip(names, args)), **kwargs}
        if "sample_weight" in options:
            options["sample_weight"] = inputs.in_a_row(options["sample_weight"])
        return *self._begin(x, y), options

    def predict(self, x, *args, **kwargs):
        """Return class probabilities (N, J) of images; arguments as `keras.Model.predict`."""
        x, _ = self._begin(x, labelled=False)
        with inputs.plain_errors(bytes_too=True):
            return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x, y=None, *args, **kwargs):
        """Train one step as `keras.Model.train_on_batch`, on the data of `fit`."""
        return super().train_on_batch(*self._begin(x, y), *args, **kwargs)

    def test_on_batch(self, x, y=None, *args, **kwargs):
        """Evaluate one batch as `keras.Model.test_on_batch`, on the data of `fit`."""
        return super().test_on_batch(*self._begin(x, y), *args, **kwargs)

    def predict_on_batch(self, x):
        """Return class probabilities (B, J) of images (B, H, W, C)."""
        return super().predict_on_batch(self._begin(x, labelled=False)[0])

    def _begin(self, x, y=None, labelled=True):
        """Check data and build what a step needs; return the data as `fit` takes them."""
        x, first = inputs.checked(self.resized(x), bytes_too=True)
        if first is not None:
            self._check_images(first)
        if labelled and y is None and inputs.is_array(x):
            raise ValueError(_NO_LABELS)
        if not self.built:
            strategy = getattr(self, "distribute_strategy", None)
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.build()
        if labelled and y is None and x is not None:
            # The check has no model, so that processes can share it.
            x = inputs.checked_labels(x, functools.partial(_check_batch, self.classes))
        elif labelled and y is not None:
            y = self._checked_labels(y, len(x) if inputs.is_known(x) else None)
        self._build_compiled_metrics()
        return x, y

    def _checked_labels(self, y, n):
        """Return the labels of `n` images as rows (N, J) by `class_rows`."""
        labels = whole_image_labels(y)
        if ops.is_tensor(labels) and not inputs.is_known(labels):
            return y
        # Always of one rank: Keras would trace a step for labels of any rank, without a shape.
        rows = class_rows(labels, self.classes, n)
        return (rows, *y[1:]) if _is_label_tuple(y) else rows

    @property
    def classes(self):
        """Number of classes J of a built model."""
        return self.capsules

    def _build_compiled_metrics(self):
        """Create the variables of compiled metrics outside of a step, which some steps need."""
        compiled = compiled_metrics(self)
        if self.compiled and compiled is not None and not compiled.built:
            shares = np.full((2, self.classes), 1 / self.classes, "float32")
            compiled.update_state(np.eye(2, self.classes, dtype="float32"), shares)
            compiled.reset_state()

    def in_parts(self, function, images, at_once=AT_ONCE):
        """Apply a function of images that returns a dict, to a bounded number at a time."""
        images = self.as_pixels(images)
        if is_numpy(images):
            images = number_array(images)
        need_tensor("images", images)
        if not inputs.is_known(images):
            return function(images)
        self._check_images(images, "images")
        inputs.check_values(images, "images", bytes_too=True)
        if not len(images):
            # Some layers take no empty batch.
            one = function(ops.zeros((1, *images.shape[1:])))
            return {name: values[:0] for name, values in one.items()}
        starts = range(0, len(images), at_once)
        parts = [function(ops.convert_to_tensor(images[k : k + at_once])) for k in starts]
        if len(parts) == 1:
            return parts[0]
        return {name: ops.concatenate([part[name] for part in parts]) for name in parts[0]}


_NO_LABELS = (
    "`y` must be the labels of the images: integers (batch,), or zeros and ones (batch, classes). "
    "Received: y=None. A classifier is trained on labels"
)


def _is_label_tuple(y):
    """Return whether labels are of images composed of parts, see `CapsNet`."""
    is_tuple = isinstance(y, (tuple, list)) and len(y) == 3
    return is_tuple and (inputs.is_array(y[0]) or y[1] is None)


def whole_image_labels(y):
    """Return the labels of whole images, also from a label tuple of images composed of parts."""
    if y is None:
        raise ValueError(_NO_LABELS)
    return y[0] if _is_label_tuple(y) else y


def _check_batch(classes, y):
    """Raise `ValueError` unless these are labels of a batch, of so many classes."""
    class_rows(whole_image_labels(y), classes, is_batch=True)


def _are_integers(shape, classes):
    """Return whether labels of this shape are integers, not zeros and ones of the classes."""
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == 1 and classes != 1)


def class_labels(y, probabilities):
    """Return labels (B, J) of zeros and ones, from such labels or from integers (B,) or (B, 1)."""
    labels, classes = whole_image_labels(y), probabilities.shape[1]
    labels = ops.convert_to_tensor(labels)
    if not inputs.has_rank(labels):
        return ops.reshape(labels, (-1, classes))
    shape = tuple(labels.shape)
    if _are_integers(shape, classes):
        flat = ops.reshape(labels, (-1,))
        # One class is there or not.
        return flat[:, None] if classes == 1 else ops.one_hot(ops.cast(flat, "int32"), classes)
    if len(shape) != 2 or shape[1] not in (None, classes):
        raise ValueError(
            f"`y` must be integers (batch,), or zeros and ones (batch, {classes}). "
            f"Received: shape {shape}"
        )
    return labels


def _of_shares(metric):
    """Return the metric of zeros and ones that corresponds to one of integers."""
    name = metric if isinstance(metric, str) else type(metric).__name__
    kind = _SPARSE.get(name, name)
    if kind not in _SPARSE.values():
        return metric
    dense = getattr(keras.metrics, kind.removeprefix("Sparse"))
    config = {"name": name} if isinstance(metric, str) else metric.get_config()
    known = inspect.signature(dense.__init__).parameters
    return dense(**{key: value for key, value in config.items() if key in known})


def as_layer(name, value, optional=False):
    """Return a Keras layer, deserialized if `value` is a config, or None if it is `optional`."""
    value = deserialized(value)
    if not (isinstance(value, keras.layers.Layer) or (optional and value is None)):
        raise ValueError(f"`{name}` must be a Keras layer. Received: {name}={value!r}")
    return value


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvClassifier(Configured, Supervised, keras.Model):
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

    @property
    def encode(self) -> Any:
        """Raise `AttributeError`: the network has no capsules."""
        raise AttributeError(
            f"A {self.TITLE.lower()} has no capsules. `classify` returns the class probabilities."
        )

    def classify(self, images: Any) -> dict[str, Any]:
        """Return class `probabilities` (B, J) and the most probable of `classes` (B,), a dict.

        Images may be files, see `CapsuleClassifier.classify`.
        """

        def classified(images):
            logits = ops.cast(self(images, training=False), "float32")
            return {"probabilities": self.class_probabilities(logits), "classes": winners(logits)}

        return self.named(self.in_parts(classified, images), images)
