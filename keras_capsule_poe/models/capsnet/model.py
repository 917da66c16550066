"""A supervised capsule network with one capsule per class."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.numerics import length
from keras_capsule_poe.core.routing import coupling_changes
from keras_capsule_poe.losses import MarginLoss
from keras_capsule_poe.models.base.classifiers import DecodedClassifier, as_layer
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.base.recipes import network_of
from keras_capsule_poe.models.capsnet.config import FAMILY
from keras_capsule_poe.training.family import lazily

_build = lazily("keras_capsule_poe.models.capsnet.training:build_model")


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsNet(DecodedClassifier, keras.Model):
    """Capsule network whose class probabilities are the lengths of its class capsules.

    The loss is the margin loss of the lengths. A decoder adds `reconstruction_weight` times the
    squared error, summed over pixels, of the image decoded from the labels' capsules. Compile with
    an optimizer and no loss. Fit on images and labels: integers (B,), or zeros and ones (B, J).
    `predict` returns class probabilities (B, J), and `encode` the capsules.

    For images composed of T parts, the labels are a tuple `(labels, targets, parts)`. The decoder
    then gets the capsules of each row of `parts` (B, T, J), compared with `targets`
    (B, T, H, W, C).

    Args:
        primary: Layer from images (B, H, W, C) to capsules (B, I, D), or its config.
        routing: Layer from these to class capsules (B, J, E), or its config.
        image_shape: Tuple (H, W, C).
        decoder: Layer from class capsules to images, or its config, or None.
        margin: `MarginLoss`, or its config. None means `MarginLoss()`.
        reconstruction_weight: Float, the weight of the squared error.
        view: Layer that crops images, or its config, or None. It must be idempotent.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, J, E), the class capsules.

    Raises:
        ValueError: If a part is not a layer or `reconstruction_weight` is not a number.

    Example:

    >>> from keras_capsule_poe import ConvCapsules, DenseDecoder, RoutingLayer
    >>> primary = keras.Sequential([keras.layers.Conv2D(4, 5), ConvCapsules(2, 4, 5)])
    >>> model = CapsNet(primary, RoutingLayer(3, 6), (16, 16, 1), DenseDecoder((16, 16, 1)))
    >>> model.build()
    >>> model.compile("adam", jit_compile=False)
    >>> images, labels = np.ones((6, 16, 16, 1), "float32"), np.eye(3)[[0, 1, 2, 0, 1, 2]]
    >>> history = model.fit(images, labels, verbose=0)
    >>> sorted(history.history)
    ['accuracy', 'loss', 'margin_loss', 'squared_error']
    >>> model.classify(images)["classes"].shape
    TensorShape([6])

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829)
    """

    TITLE = "Capsule network"
    LOSS = "margin_loss"

    def __init__(
        self,
        primary: Serializable,
        routing: Serializable,
        image_shape: tuple[int, int, int],
        decoder: Serializable | None = None,
        margin: Serializable | None = None,
        reconstruction_weight: float = 0.0005,
        view: Serializable | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.view = as_layer("view", view, optional=True)
        self.primary = as_layer("primary", primary)
        self.routing = as_layer("routing", routing)
        self.margin = MarginLoss() if margin is None else deserialized(margin)
        self.set_decoder(decoder, image_shape, reconstruction_weight)

    @classmethod
    def from_recipe(cls, name: str, input_shape: tuple[int, int, int], classes: int) -> "CapsNet":
        """Create the network of a recipe, which `capspoe train` trains with the same settings.

        Args:
            name: str, a recipe of capsules, such as `"small"` or `"paper"`.
            input_shape: Tuple (H, W, C), shape of the images.
            classes: int, number of classes J.

        Returns:
            `CapsNet`, built but not compiled.

        Raises:
            ValueError: If an argument is invalid or the images are too small.

        Example:

        >>> model = CapsNet.from_recipe("small", (28, 28, 1), classes=3)
        >>> model.compile("adam")
        >>> images = np.random.default_rng(0).uniform(size=(6, 28, 28, 1))
        >>> history = model.fit(images, np.arange(6) % 3, verbose=0)
        >>> model.predict(images, verbose=0).shape
        (6, 3)
        """
        return network_of(FAMILY, "capsnet", _build, name, input_shape, classes)

    def build(self, input_shape=None):
        if self.built:
            return
        sizes = (None, None) if self.any_size else self.image_shape[:2]
        shape = (None, *sizes, self.image_shape[2])
        for part in (self.view, self.primary, self.routing, self.decoder):
            if part is not None:
                build_once(part, shape)
                shape = part.compute_output_shape(shape)
        self.built = True

    @property
    def any_size(self):
        """True if the model accepts other image sizes: shared weights, no decoder, no view."""
        shared = getattr(self.routing, "shared_weights", False)
        return shared and self.view is None and self.decoder is None

    @property
    def capsules(self):
        """Number of classes J."""
        return self.routing.capsules

    @property
    def dim(self):
        """Size E of a class capsule."""
        return self.routing.dim

    def call(self, images, training=None):
        return self.routing(self.primary(self._seen(images), training=training))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.capsules, self.dim)

    # Training

    def found(self, outputs):
        capsules = ops.cast(outputs, "float32")
        return capsules, length(capsules)

    def class_loss(self, labels, probabilities, sample_weight=None):
        return self.margin(labels, probabilities, sample_weight)

    # Couplings

    @property
    def routing_iterations(self):
        """Number T of routing iterations, as Sabour et al. count them; one without iterations."""
        options = getattr(self.routing, "options", None)
        return 1 if options is None else options.routing_iterations

    def couplings(self, images):
        """Return the coupling coefficients c_ij of each image in every routing iteration.

        Returns:
            Tensor (B, T, I, J) for T `routing_iterations`.

        Raises:
            ValueError: If the routing has no iterations.
        """
        x = self.primary(self._seen(images), training=False)
        return ops.stack(self._router(x).all_coefficients(x), axis=1)

    def coupling_changes(self, images):
        """Return the mean absolute change of the routing logits per update, (B, T - 1)."""
        x = self.primary(self._seen(images), training=False)
        return coupling_changes(self._router(x), x, each=True)

    def _router(self, x):
        if self.routing_iterations == 1:
            raise ValueError(
                "Coupling coefficients change by routing iterations only. Received: "
                "routing_iterations=1"
            )
        return self.routing.router(inputs=ops.shape(x)[1])

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "primary": serialize(self.primary),
            "routing": serialize(self.routing),
            "margin": serialize(self.margin),
        }
