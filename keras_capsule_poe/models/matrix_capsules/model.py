"""A network of matrix capsules with EM routing, its layers, and its couplings."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.callbacks import SpreadMargin
from keras_capsule_poe.layers.capsules import Standardize
from keras_capsule_poe.layers.convolutions import DenseDecoder, FastConv2D
from keras_capsule_poe.losses import MarginLoss, SpreadLoss
from keras_capsule_poe.models.base.classifier import Classifier
from keras_capsule_poe.models.base.networks import plain_convolutions, seen_shape
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.base.supervised import as_layer
from keras_capsule_poe.models.matrix_capsules.layers import (
    ConvEMCapsules,
    EMCapsules,
    PrimaryMatrixCapsules,
)
from keras_capsule_poe.models.matrix_capsules.settings import MatrixSettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keras_capsule_poe._keywords import MatrixCapsNetArguments, MatrixCapsNetPreset

# Filters of the baseline. With `net.filters`, its 5x5 convolutions alone would be too large.
BASELINE_FILTERS = 16


def capsule_layers(settings, starts):
    """Return the primary capsules, two convolutional layers and the class capsules."""
    net, how = settings.net, settings.compute.implementation
    is_published = net.published_code
    primary = PrimaryMatrixCapsules(
        net.primary_types,
        net.size,
        activation_bias=-1.0 if is_published else 0.0,
        pose_initializer=starts.kernel(0.5),
        activation_initializer=starts.kernel(3.0),
        dtype="float32",
        name="primary_capsules",
    )
    # Variational routing has no costs to scale.
    activation_scale = -2500.0 if is_published else 10.0

    def options(iterations, stddev, cost, activation, inverse_temperature):
        # In the published code, costs are s (ln 2 pi + 1) + ln variance. Ours are half of that.
        cost = cost * (math.log(2 * math.pi) + 1) / 2 if is_published else 0.0
        return {
            "routing": net.routing,
            "routing_iterations": iterations,
            "inverse_temperature": inverse_temperature,
            "compete": "places" if is_published else "all",
            "damping": 0.1 if is_published else 0.0,
            "variance_floor": net.variance_floor,
            "assignment_temperature": net.assignment_temperature,
            "normalize_mass": not is_published,
            "activation_scale": activation_scale if net.routing == "em" else 1.0,
            "implementation": "xla" if how == "auto" else how,
            "kernel_initializer": starts.maps(stddev),
            "cost_initializer": keras.initializers.Constant(cost),
            "activation_initializer": keras.initializers.Constant(
                activation if is_published else 0.0
            ),
            "dtype": "float32",
        }

    inner = net.inner_routing_iterations or net.routing_iterations
    temperature, stddev = net.inverse_temperature, 0.01 if is_published else 0.3
    # The class capsules have the first seed.
    last = options(net.routing_iterations, stddev, 2.0, 1.0, net.class_temperature * temperature)
    # They have one position, so "places" would remove all competition.
    last["compete"] = "all"
    first, second = (options(inner, 0.3, 0.5, 0.5, temperature) for _ in range(2))
    return [
        primary,
        ConvEMCapsules(net.types, 3, strides=2, name="first_layer", **first),
        ConvEMCapsules(net.last_types, 3, name="second_layer", **second),
        EMCapsules(net.classes, coordinates=net.coordinates, name="class_capsules", **last),
    ]


def loss_of(net):
    """Return the loss of the activations of the classes."""
    if net.loss == "margin":
        return MarginLoss()
    if net.loss == "cross-entropy":
        return keras.losses.CategoricalCrossentropy(from_logits=True)
    return SpreadLoss(0.2, "official" if net.published_code else "sum")


@keras.saving.register_keras_serializable("keras_capsule_poe")
class MatrixCapsNet(Classifier, keras.Model):
    """Network of matrix capsules whose class activations come from EM routing.

    The loss is the spread loss of the activations. A decoder adds `reconstruction_weight` times
    the squared error, summed over pixels, of the image decoded from the labels' poses. Compile
    with an optimizer and no loss. Fit on the same data as a `CapsNet`.

    `MatrixCapsNet(preset="small").fit(images, labels)` makes and trains a network of settings, as
    `capspoe train` does, without `compile`.

    Args:
        features: Layer or model from images (B, H, W, C) to a feature map, or its config.
        layers: List of layers or configs. The first returns poses and activations, as
            `PrimaryMatrixCapsules` does. The last returns one capsule per class at a single
            position.
        image_shape: Tuple (H, W, C).
        loss: Keras loss of activations (B, J), or its config. None means `SpreadLoss()`. The
            callback `SpreadMargin` increases its margin.
        decoder: Layer from poses (B, J, P P) to images, or its config, or None.
        reconstruction_weight: Float, the weight of the squared error. None means 0.0005.
        view: Layer that crops images, or its config, or None. See `CapsNet`.
        preset: String, a named set of settings in place of layers: `"small"` (the default),
            `"paper"` or `"official"`.
        **settings: Settings in place of layers, such as `seed=1` or `routing="variational"`; see
            `MatrixSettings`. Also `name`, `trainable` and `dtype` of `keras.Model`.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tuple of poses (B, J, P P) and activations (B, J) of the classes.

    Raises:
        ValueError: If a part is not a layer, `reconstruction_weight` is not a number, or the last
            layer has several positions.
        ConfigError: If a setting does not exist or its value is not valid.

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

    PARTS = ("view", "features", "capsule_layers", "spread", "decoder")
    NEEDED = ("features", "layers")
    SETTINGS = MatrixSettings
    TITLE = "Network of matrix capsules"
    MEASURE = "activation"

    def __init__(
        self,
        features: Serializable | None = None,
        layers: Sequence[Serializable] | None = None,
        image_shape: tuple[int, int, int] | None = None,
        loss: Serializable | None = None,
        decoder: Serializable | None = None,
        reconstruction_weight: float | None = None,
        view: Serializable | None = None,
        *,
        preset: "MatrixCapsNetPreset" = None,
        **settings: "Unpack[MatrixCapsNetArguments]",
    ) -> None:
        arguments = {"features": features, "layers": layers, "image_shape": image_shape}
        arguments |= {"loss": loss, "decoder": decoder, "view": view}
        arguments["reconstruction_weight"] = reconstruction_weight
        if not self.begin(arguments, preset, settings):
            return
        self.view = as_layer("view", view, optional=True)
        self.features = as_layer("features", features)
        self.capsule_layers = [as_layer("layers", layer) for layer in layers or ()]
        self.spread = SpreadLoss() if loss is None else deserialized(loss)
        self.set_decoder(decoder, image_shape, reconstruction_weight)

    @classmethod
    def network(cls, settings, image_shape, view, dtype, starts):
        net, seen = settings.net, seen_shape(view, image_shape)
        convolution = FastConv2D(
            net.filters,
            5,
            strides=2,
            padding="same",
            activation="relu",
            kernel_initializer=starts.kernel(0.05),
            bias_initializer=starts.bias(),
            dtype=dtype,
            name="convolution",
        )
        layers = [keras.layers.Input(seen), Standardize(dtype="float32"), convolution]
        return cls.base()(
            keras.Sequential(layers, name="features"),
            capsule_layers(settings, starts),
            image_shape,
            loss_of(net),
            starts.decoder(DenseDecoder if net.decoder == "dense" else None, seen),
            net.reconstruction_weight,
            view,
            name="matrix",
        )

    @classmethod
    def baseline_layers(cls, net, view, dtype, starts):
        layers = plain_convolutions(BASELINE_FILTERS, net.units is None, dtype, starts)
        flat = keras.layers.Flatten(dtype="float32")
        return [Standardize(dtype="float32"), *layers, flat]

    @classmethod
    def callbacks(cls, settings, model, steps):
        """Return the callback that increases the margin of a spread loss."""
        loss = getattr(model, "spread", None)
        if not isinstance(loss, SpreadLoss):
            return []
        if settings.net.published_code:
            return [SpreadMargin(700_000, loss, 0.2, 0.99, "official")]
        return [SpreadMargin(steps, loss)]

    def described(self, seen):
        names = ("primary capsules", "first layer", "second layer", "class capsules")
        shapes, shape = {}, self.features.compute_output_shape((1, *seen))
        for name, layer in zip(names, self.capsule_layers):
            shape = layer.compute_output_shape(shape)
            shapes[name] = shape[1][1:]
        parts = {"features": self.features, "decoder": self.decoder}
        return shapes, parts | dict(zip(names, self.capsule_layers))

    def build(self, input_shape=None):
        if self.built:
            return
        self.need_parts()
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
        """Number T of EM iterations; one without iterations."""
        options = getattr(self.capsule_layers[-1], "options", None)
        return 1 if options is None else options.routing_iterations

    def couplings(self, images):
        """Return the assignment probabilities r_ij to the classes by iteration, (B, T, I, J)."""
        return ops.exp(self._log_couplings(images))

    def coupling_changes(self, images):
        """Return the mean absolute change of ln r_ij per E step, (B, T - 1), nats."""
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
        config, serialize = super().get_config(), keras.saving.serialize_keras_object
        if not self.is_fitted:
            return config
        return {
            **config,
            "features": serialize(self.features),
            "layers": [serialize(layer) for layer in self.capsule_layers],
            "loss": serialize(self.spread),
        }
