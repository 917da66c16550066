"""A supervised capsule network: images to capsules of classes, and back to images."""

import keras
from keras import ops

from keras_capsule_poe.functions.checks import real_number
from keras_capsule_poe.functions.coupling_changes import coupling_changes
from keras_capsule_poe.functions.norms import length
from keras_capsule_poe.layers.capsule_length import CapsuleMask
from keras_capsule_poe.losses import MarginLoss
from keras_capsule_poe.models.decoded_classifier import DecodedClassifier


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsNet(DecodedClassifier, keras.Model):
    """Images to capsules of classes, whose lengths are the classes' probabilities.

    Trained by the margin loss of the lengths, and where there is a decoder by the squared error,
    summed over the pixels, of the image that it makes of the labels' capsules alone. Compile it
    with an optimizer and no loss; it is fitted to images and to labels (B, J) of zeros and ones.
    Where an image is made of several, labels are a tuple (labels, targets, parts): the images
    (B, T, H, W, C) of its parts and labels (B, T, J), by which each is decoded on its own.

    Args:
        primary: Layer or model from images (B, H, W, C) to capsules (B, I, D), or its config.
        routing: Layer from these to capsules (B, J, E), one a class, or its config.
        image_shape: (H, W, C). With weights that all inputs of `routing` share, and neither decoder
            nor view, images of other heights and widths may be given, too: `any_size`.
        decoder: Layer from capsules (B, J, E) to images, or its config; or None.
        margin: `MarginLoss`, or its config.
        reconstruction_weight: float, of the squared error.
        view: Layer from images to what `primary` sees of them and the decoder makes, for instance
            a `keras.layers.CenterCrop`, or its config; None: all of it. What is seen already must
            stay as it is: a training stream may give windows of its own.
        **kwargs: Base model arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in [0, 1].

    Returns:
        Tensor (B, J, E), capsules of classes.

    Raises:
        ValueError: If a part is no layer, or the weight no number.

    Examples:

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
        primary,
        routing,
        image_shape,
        decoder=None,
        margin=None,
        reconstruction_weight=0.0005,
        view=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.view = None if view is None else as_layer("view", view)
        self.primary = as_layer("primary", primary)
        self.routing = as_layer("routing", routing)
        self.decoder = None if decoder is None else as_layer("decoder", decoder)
        self.image_shape = tuple(image_shape)
        margin = keras.saving.deserialize_keras_object(margin) if _is_config(margin) else margin
        self.margin = MarginLoss() if margin is None else margin
        self.reconstruction_weight = real_number("reconstruction_weight", reconstruction_weight)
        self.mask = CapsuleMask(dtype="float32")
        self.make_trackers()

    def build(self, input_shape=None):
        if self.built:
            return
        sizes = (None, None) if self.any_size else self.image_shape[:2]
        shape = (None, *sizes, self.image_shape[2])
        for part in (self.view, self.primary, self.routing, self.decoder):
            # A part that was saved was built as it was loaded.
            if part is not None and not part.built:
                part.build(shape)
            shape = shape if part is None else part.compute_output_shape(shape)
        self.built = True

    @property
    def any_size(self):
        """Whether it names the classes of images of other heights and widths, too."""
        shared = getattr(self.routing, "shared_weights", False)
        return shared and self.view is None and self.decoder is None

    @property
    def capsules(self):
        """How many classes there are, J."""
        return self.routing.capsules

    @property
    def dim(self):
        """The size of a capsule of a class, E."""
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
    def iterations(self):
        """How often routing updates its coefficients: never where it is uniform or in one pass."""
        options = getattr(self.routing, "options", None)
        return 0 if options is None else options.iterations

    def couplings(self, images):
        """Routing coefficients c_ij of input capsule i and class j, iteration by iteration.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            Tensor (B, T + 1, I, J): as they start, and after each of T iterations. Sabour et al.
            count one more, whose update they do not use.

        Raises:
            ValueError: If there are no iterations.
        """
        x = self.primary(self._seen(images), training=False)
        return ops.stack(self._router(x).all_coefficients(x), axis=1)

    def coupling_changes(self, images):
        """How far each iteration moves the logits of each image, (B, T), see the function."""
        x = self.primary(self._seen(images), training=False)
        return coupling_changes(self._router(x), x, each=True)

    def _router(self, x):
        if not self.iterations:
            raise ValueError(
                "Couplings change by iterations of routing; `RoutingLayer` with some has them. "
                "Received: iterations=0"
            )
        return self.routing.router(inputs=ops.shape(x)[1])

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "primary": serialize(self.primary),
            "routing": serialize(self.routing),
            "image_shape": self.image_shape,
            "decoder": None if self.decoder is None else serialize(self.decoder),
            "margin": serialize(self.margin),
            "reconstruction_weight": self.reconstruction_weight,
            "view": None if self.view is None else serialize(self.view),
        }


def _is_config(value):
    return isinstance(value, dict)


def as_layer(name, value):
    """A Keras layer, or that of a config.

    Raises:
        ValueError: If it is none.
    """
    value = keras.saving.deserialize_keras_object(value) if _is_config(value) else value
    if not isinstance(value, keras.layers.Layer):
        raise ValueError(f"`{name}` must be a Keras layer. Received: {name}={value!r}")
    return value
