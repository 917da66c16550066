"""A network of matrix capsules with EM routing."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.losses import SpreadLoss
from keras_capsule_poe.models.base.classifiers import DecodedClassifier, as_layer
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.base.recipes import network_of
from keras_capsule_poe.models.matrix_capsules.config import FAMILY
from keras_capsule_poe.training.family import lazily

_build = lazily("keras_capsule_poe.models.matrix_capsules.training:build_model")


@keras.saving.register_keras_serializable("keras_capsule_poe")
class MatrixCapsNet(DecodedClassifier, keras.Model):
    """Network of matrix capsules whose class activations come from EM routing.

    The loss is the spread loss of the activations. A decoder adds `reconstruction_weight` times
    the squared error, summed over pixels, of the image decoded from the labels' poses. Compile
    with an optimizer and no loss. Fit on the same data as a `CapsNet`.

    Args:
        features: Layer or model from images (B, H, W, C) to a feature map, or its config.
        layers: List of layers or configs. The first returns poses and activations, as
            `PrimaryMatrixCapsules` does. The last returns one capsule per class at a single
            position.
        image_shape: Tuple (H, W, C).
        loss: Keras loss of activations (B, J), or its config. None means `SpreadLoss()`. The
            callback `SpreadMargin` increases its margin.
        decoder: Layer from poses (B, J, P P) to images, or its config, or None.
        reconstruction_weight: Float, the weight of the squared error.
        view: Layer that crops images, or its config, or None. See `CapsNet`.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tuple of poses (B, J, P P) and activations (B, J) of the classes.

    Raises:
        ValueError: If a part is not a layer, `reconstruction_weight` is not a number, or the last
            layer has several positions.

    Example:

    >>> from keras_capsule_poe import ConvEMCapsules, EMCapsules, PrimaryMatrixCapsules
    >>> layers = [PrimaryMatrixCapsules(2), ConvEMCapsules(3, strides=2), EMCapsules(5)]
    >>> model = MatrixCapsNet(keras.layers.Conv2D(8, 5, 2, activation="relu"), layers, (16, 16, 2))
    >>> model.build()
    >>> model.classify(np.ones((4, 16, 16, 2), "float32"))["probabilities"].shape
    TensorShape([4, 5])

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb)
    """

    TITLE = "Network of matrix capsules"
    MEASURE = "activation"

    def __init__(
        self,
        features: Serializable,
        layers: Sequence[Serializable],
        image_shape: tuple[int, int, int],
        loss: Serializable | None = None,
        decoder: Serializable | None = None,
        reconstruction_weight: float = 0.0005,
        view: Serializable | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.view = as_layer("view", view, optional=True)
        self.features = as_layer("features", features)
        self.capsule_layers = [as_layer("layers", layer) for layer in layers]
        self.spread = SpreadLoss() if loss is None else deserialized(loss)
        self.set_decoder(decoder, image_shape, reconstruction_weight)

    @classmethod
    def from_recipe(
        cls, name: str, input_shape: tuple[int, int, int], classes: int
    ) -> "MatrixCapsNet":
        """Create the network of a recipe, which `capspoe train` trains with the same settings.

        The margin of the loss is that of the recipe's start; `SpreadMargin` increases it.

        Args:
            name: str, a recipe of capsules, such as `"small"` or `"paper"`.
            input_shape: Tuple (H, W, C), shape of the images.
            classes: int, number of classes J.

        Returns:
            `MatrixCapsNet`, built but not compiled.

        Raises:
            ValueError: If an argument is invalid or the images are too small.

        Example:

        >>> model = MatrixCapsNet.from_recipe("small", (16, 16, 1), classes=3)
        >>> model.compile("adam")
        >>> images = np.random.default_rng(0).uniform(size=(6, 16, 16, 1))
        >>> history = model.fit(images, np.arange(6) % 3, verbose=0)
        >>> model.predict(images, verbose=0).shape
        (6, 3)
        """
        return network_of(FAMILY, "matrix", _build, name, input_shape, classes)

    def build(self, input_shape=None):
        if self.built:
            return
        shape = (None, *self.image_shape)
        for part in (self.view, self.features, *self.capsule_layers):
            if part is not None:
                build_once(part, shape)
                shape = part.compute_output_shape(shape)
        pose, _ = shape
        if pose[1:3] != (1, 1):
            raise ValueError(
                "The last of `layers` must have a single place, as `EMCapsules` has. "
                f"Received: {pose[1]}x{pose[2]} places"
            )
        self.capsules, self.dim = pose[3], pose[4] * pose[5]
        if self.decoder is not None:
            build_once(self.decoder, (None, self.capsules, self.dim))
        self.built = True

    def call(self, images, training=None):
        pose, activation = self.layer_by_layer(images, training)[-1]
        shape = (-1, self.capsules, self.dim)
        return ops.reshape(pose, shape), ops.reshape(activation, shape[:2])

    def layer_by_layer(self, images, training=None):
        """Return a list of poses (B, h, w, I, P, P) and activations (B, h, w, I) per layer."""
        found, x = [], self.features(self._seen(images), training=training)
        for layer in self.capsule_layers:
            x = layer(x)
            found.append(x)
        return found

    @property
    def routing_iterations(self):
        """Number of EM iterations; one without iterations."""
        options = getattr(self.capsule_layers[-1], "options", None)
        return 1 if options is None else options.routing_iterations

    def couplings(self, images):
        """Return the assignment probabilities r_ij to the classes per E step, (B, T + 1, I, J)."""
        return ops.exp(self._log_couplings(images))

    def coupling_changes(self, images):
        """Return the mean absolute change of ln r_ij per E step, (B, T), nats."""
        logs = self._log_couplings(images)
        return ops.mean(ops.abs(logs[:, 1:] - logs[:, :-1]), axis=(2, 3))

    def _log_couplings(self, images):
        children = self.layer_by_layer(images)[-2]
        steps = self.capsule_layers[-1].steps(children)
        logs = ops.stack([step.log_assignment for step in steps], axis=1)
        return ops.reshape(logs, (-1, len(steps), math.prod(logs.shape[2:-1]), self.capsules))

    def layer_maps(self, images, classes):
        """Trace a class down the layers, to the child with the largest activation times coupling.

        Args:
            images: Tensor (B, H, W, C), pixels in `[0, 1]`.
            classes: Integer tensor (B,), the class of each image.

        Returns:
            Dict by layer name, first layer first, of dicts. `activation` is (B, h, w, I).
            `followed` (B,) is the flat index of the traced capsule. All but the last layer add
            `coupling` (B, T, h, w, I), to the traced parent, with NaN outside its receptive field.
        """
        found, maps = self.layer_by_layer(images), {}
        _, activation = found.pop()
        followed = ops.cast(classes, "int32")
        maps[self.capsule_layers[-1].name] = {"activation": activation, "followed": followed}
        for above, layer in zip(self.capsule_layers[:0:-1], self.capsule_layers[-2::-1]):
            inputs = found.pop()
            coupling, activation = above.couplings_to(followed, inputs), inputs[1]
            given = ops.where(ops.isnan(coupling[:, -1]), -1.0, coupling[:, -1] * activation)
            followed = ops.argmax(ops.reshape(given, (-1, math.prod(given.shape[1:]))), axis=1)
            followed = ops.cast(followed, "int32")
            maps[layer.name] = {
                "activation": activation, "followed": followed, "coupling": coupling,
            }  # fmt: skip
        return dict(reversed(maps.items()))

    def found(self, outputs):
        return tuple(ops.cast(x, "float32") for x in outputs)

    def class_loss(self, labels, probabilities, sample_weight=None):
        return self.spread(labels, probabilities, sample_weight)

    def compute_output_shape(self, input_shape):
        places = (input_shape[0], self.capsules)
        return (*places, self.dim), places

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "features": serialize(self.features),
            "layers": [serialize(layer) for layer in self.capsule_layers],
            "loss": serialize(self.spread),
        }
