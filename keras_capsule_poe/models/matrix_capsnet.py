"""A network of matrix capsules: images to poses and activations of classes."""

import math

import keras
from keras import ops

from keras_capsule_poe.functions.checks import real_number
from keras_capsule_poe.layers.capsule_length import CapsuleMask
from keras_capsule_poe.losses import SpreadLoss
from keras_capsule_poe.models.capsnet import as_layer
from keras_capsule_poe.models.decoded_classifier import DecodedClassifier


@keras.saving.register_keras_serializable("keras_capsule_poe")
class MatrixCapsNet(DecodedClassifier, keras.Model):
    """Images to matrix capsules of classes, routed by EM; their activations name the class.

    Trained by the spread loss of the activations, and where there is a decoder by the squared
    error, summed over the pixels, of the image that it makes of the labels' poses alone. Compile
    it with an optimizer and no loss; it is fitted to what a `CapsNet` is.

    Args:
        features: Layer or model from images (B, H, W, C) to a feature map, or its config.
        layers: List of layers or their configs: the first from a feature map to poses and
            activations, such as `PrimaryMatrixCapsules`; each further one from these to those of
            its parents; the last one has a single place, and a capsule for each class.
        image_shape: (H, W, C).
        loss: Keras loss of activations (B, J) by labels (B, J), or its config; None:
            `SpreadLoss()`, whose margin `SpreadMargin` lets grow.
        decoder: Layer from poses (B, J, P P) to images, or its config; or None.
        reconstruction_weight: float, of the squared error.
        view: See `CapsNet`.
        **kwargs: Base model arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in [0, 1].

    Returns:
        Poses (B, J, P P) and activations (B, J) of classes.

    Raises:
        ValueError: If a part is no layer, the weight no number, or the last layer has several
            places.

    Examples:

    >>> import numpy as np
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
        features,
        layers,
        image_shape,
        loss=None,
        decoder=None,
        reconstruction_weight=0.0005,
        view=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.view = None if view is None else as_layer("view", view)
        self.features = as_layer("features", features)
        self.capsule_layers = [as_layer("layers", layer) for layer in layers]
        self.image_shape = tuple(image_shape)
        loss = keras.saving.deserialize_keras_object(loss) if isinstance(loss, dict) else loss
        self.spread = SpreadLoss() if loss is None else loss
        self.decoder = None if decoder is None else as_layer("decoder", decoder)
        self.reconstruction_weight = real_number("reconstruction_weight", reconstruction_weight)
        self.mask = CapsuleMask(dtype="float32")
        self.make_trackers()

    def build(self, input_shape=None):
        if self.built:
            return
        shape = (None, *self.image_shape)
        for part in (self.view, self.features, *self.capsule_layers):
            if part is None:
                continue
            # A part that was saved was built as it was loaded.
            if not part.built:
                part.build(shape)
            shape = part.compute_output_shape(shape)
        pose, _ = shape
        if pose[1:3] != (1, 1):
            raise ValueError(
                "The last of `layers` must have a single place, as `EMCapsules` has. "
                f"Received: {pose[1]}x{pose[2]} places"
            )
        self.capsules, self.dim = pose[3], pose[4] * pose[5]
        if self.decoder is not None and not self.decoder.built:
            self.decoder.build((None, self.capsules, self.dim))
        self.built = True

    def call(self, images, training=None):
        pose, activation = self.layer_by_layer(images, training)[-1]
        shape = (-1, self.capsules, self.dim)
        return ops.reshape(pose, shape), ops.reshape(activation, shape[:2])

    def layer_by_layer(self, images, training=None):
        """Poses (B, h, w, I, P, P) and activations (B, h, w, I) of each layer, a list."""
        found, x = [], self.features(self._seen(images), training=training)
        for layer in self.capsule_layers:
            x = layer(x)
            found.append(x)
        return found

    # Couplings

    @property
    def iterations(self):
        """How often routing to the classes updates its assignments: never of one iteration."""
        options = getattr(self.capsule_layers[-1], "options", None)
        return 0 if options is None else options.iterations - 1

    def couplings(self, images):
        """Assignments r_ij of each capsule i of the last layer but one to each class j.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            Tensor (B, T + 1, I, J): as they start, and after each of T E steps.
        """
        return ops.exp(self._log_couplings(images))

    def coupling_changes(self, images):
        """How far each E step moves ln r_ij, the logit of each image's assignments, (B, T).

        Means of |ln r_ij - ln r_ij before| over all i and j, in nats.
        """
        logs = self._log_couplings(images)
        return ops.mean(ops.abs(logs[:, 1:] - logs[:, :-1]), axis=(2, 3))

    def _log_couplings(self, images):
        children = self.layer_by_layer(images)[-2]
        steps = self.capsule_layers[-1].steps(children)
        logs = ops.stack([step.log_assignment for step in steps], axis=1)
        return ops.reshape(logs, (-1, len(steps), math.prod(logs.shape[2:-1]), self.capsules))

    def layer_maps(self, images, classes):
        """What was found of each image in each layer, and what of it led to one of the classes.

        From that class down, of each layer one capsule is followed: the one that gives most to
        the one above, by its activation times its coupling.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].
            classes: Integer tensor (B,).

        Returns:
            dict by the layers' names, the first one first, of dicts: `activation` (B, h, w, I);
            `followed` (B,), which of the h w I capsules; and but in the last one `coupling`
            (B, T, h, w, I), that to the one followed above, see `MatrixParents.couplings_to`.
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

    # Training

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
            "image_shape": self.image_shape,
            "loss": serialize(self.spread),
            "decoder": None if self.decoder is None else serialize(self.decoder),
            "reconstruction_weight": self.reconstruction_weight,
            "view": None if self.view is None else serialize(self.view),
        }
