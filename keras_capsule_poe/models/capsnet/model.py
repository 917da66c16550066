"""A supervised capsule network with one capsule per class, its layers, and its couplings."""

import math
from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.numerics import length
from keras_capsule_poe.core.routing import coupling_changes, routing_steps
from keras_capsule_poe.layers.capsules import ConvCapsules, Squash, Standardize
from keras_capsule_poe.layers.convolutions import ConvDecoder, DenseDecoder, FastConv2D
from keras_capsule_poe.layers.routing import RoutingLayer, SelfAttentionRouting
from keras_capsule_poe.losses import MarginLoss
from keras_capsule_poe.models.base.classifier import Classifier
from keras_capsule_poe.models.base.networks import plain_convolutions, seen_shape
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.base.supervised import as_layer
from keras_capsule_poe.models.capsnet.settings import CapsNetSettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keras_capsule_poe._keywords import CapsNetArguments, CapsNetPreset

# Convolutions as (kernel size, filters, stride), and average pooling (None).
CONVOLUTIONS = {
    "efficient": ((5, 32, 1), (3, 64, 1), (3, 64, 1), (3, 128, 2)),
    "places": ((3, 64, 1), (3, 64, 1), None, (3, 128, 1), (3, 128, 1)),
}
DECODERS = {"none": None, "dense": DenseDecoder, "conv": ConvDecoder}


def convolutions(body, dtype, starts):
    """Return the convolutional layers of a body, normalized for Efficient-CapsNet."""
    layers = []
    for each in CONVOLUTIONS[body]:
        if each is None:
            layers.append(keras.layers.AveragePooling2D(2, dtype=dtype))
            continue
        size, filters, strides = each
        start = starts.kernel(0.1)
        how = {"strides": strides, "activation": "relu", "kernel_initializer": start}
        layers.append(FastConv2D(filters, size, dtype=dtype, **how))
        if body == "efficient":
            layers.append(keras.layers.BatchNormalization(dtype=dtype))
    return layers


def body_layers(net, image_shape, dtype, starts):
    """Return the layers from images (H, W, C) to the input capsules of a body."""
    if net.body == "capsules":

        def start(stddev):
            return {
                "kernel_initializer": starts.kernel(stddev),
                "bias_initializer": starts.bias(),
                "dtype": dtype,
            }

        return [
            FastConv2D(net.filters, 9, activation="relu", name="convolution", **start(0.05)),
            ConvCapsules(
                net.types,
                net.primary_dim,
                divide=net.published_code,
                name="primary_capsules",
                **start(0.1),
            ),
        ]
    layers, sizes = convolutions(net.body, dtype, starts), image_shape[:2]
    if net.body == "places":
        return [*layers, keras.layers.Reshape((-1, 128), dtype="float32")]
    for size, _, stride in CONVOLUTIONS["efficient"]:
        sizes = [(side - size) // stride + 1 for side in sizes]
    # A depthwise filter as large as the feature map leaves one position.
    start = starts.kernel(0.1)
    return [
        *layers,
        keras.layers.DepthwiseConv2D(tuple(sizes), depthwise_initializer=start, dtype=dtype),
        keras.layers.Reshape((16, 8), dtype="float32"),
        Squash("exponential", dtype="float32", name="primary_capsules"),
    ]


def routing_layer(settings, starts):
    """Return the layer from input capsules to class capsules."""
    net, form = settings.net, settings.compute.implementation
    is_uniform = net.coefficients == "uniform"
    implementation = "reference" if form == "reference" else "fused"
    if net.body == "efficient":
        # He normal: Keras computes a fan-in of 10 * 16 * 8 from the shape (J, I, D, E).
        start, how = starts.maps((2 / 1280) ** 0.5), "uniform" if is_uniform else "attention"
        return SelfAttentionRouting(
            net.classes,
            net.dim,
            routing=how,
            kernel_initializer=start,
            implementation=implementation,
            name="routing",
        )
    return RoutingLayer(
        net.classes,
        net.dim,
        routing_iterations=1 if is_uniform else net.routing_iterations,
        agreement=net.agreement,
        logits=net.logits,
        leaky=net.leaky,
        use_bias=net.published_code,
        bias_initializer=starts.bias(),
        shared_weights=net.body == "places",
        kernel_initializer=starts.maps(0.1),
        implementation=implementation,
        name="routing",
    )


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsNet(Classifier, keras.Model):
    """Capsule network whose class probabilities are the lengths of its class capsules.

    The loss is the margin loss of the lengths. A decoder adds `reconstruction_weight` times the
    squared error, summed over pixels, of the image decoded from the labels' capsules. Compile with
    an optimizer and no loss. Fit on images and labels: integers (B,), or zeros and ones (B, J).
    `predict` returns class probabilities (B, J), and `encode` the capsules.

    `CapsNet(preset="small").fit(images, labels)` makes and trains a network of settings, as
    `capspoe train` does, without `compile`.

    For images composed of T parts, the labels are a tuple `(labels, targets, parts)`. The decoder
    then gets the capsules of each row of `parts` (B, T, J), compared with `targets`
    (B, T, H, W, C).

    Args:
        primary: Layer from images (B, H, W, C) to capsules (B, I, D), or its config.
        routing: Layer from these to class capsules (B, J, E), or its config.
        image_shape: Tuple (H, W, C).
        decoder: Layer from class capsules to images, or its config, or None.
        margin: `MarginLoss`, or its config. None means `MarginLoss()`.
        reconstruction_weight: Float, the weight of the squared error. None means 0.0005.
        view: Layer that crops images, or its config, or None. It must be idempotent.
        preset: String, a named set of settings in place of layers: `"paper"` (the default),
            `"official"`, `"small"`, `"efficient"` or `"shared"`.
        **settings: Settings in place of layers, such as `seed=1` or `routing_iterations=2`; see
            `CapsNetSettings`. Also `name`, `trainable` and `dtype` of `keras.Model`.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, J, E), the class capsules.

    Raises:
        ValueError: If a part is not a layer or `reconstruction_weight` is not a number.
        ConfigError: If a setting does not exist or its value is not valid.

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

    PARTS = ("view", "primary", "routing", "margin", "decoder")
    NEEDED = ("primary", "routing")
    SETTINGS = CapsNetSettings
    TITLE = "Capsule network"
    LOSS = "margin_loss"

    def __init__(
        self,
        primary: Serializable | None = None,
        routing: Serializable | None = None,
        image_shape: tuple[int, int, int] | None = None,
        decoder: Serializable | None = None,
        margin: Serializable | None = None,
        reconstruction_weight: float | None = None,
        view: Serializable | None = None,
        *,
        preset: "CapsNetPreset" = None,
        **settings: "Unpack[CapsNetArguments]",
    ) -> None:
        arguments = {"primary": primary, "routing": routing, "image_shape": image_shape}
        arguments |= {"decoder": decoder, "margin": margin, "view": view}
        arguments["reconstruction_weight"] = reconstruction_weight
        if not self.begin(arguments, preset, settings):
            return
        self.view = as_layer("view", view, optional=True)
        self.primary = as_layer("primary", primary)
        self.routing = as_layer("routing", routing)
        self.margin = MarginLoss() if margin is None else deserialized(margin)
        self.set_decoder(decoder, image_shape, reconstruction_weight)

    @classmethod
    def network(cls, settings, image_shape, view, dtype, starts):
        net, seen = settings.net, seen_shape(view, image_shape)
        layers = [Standardize(dtype="float32")] if view is not None else []
        layers += body_layers(net, seen, dtype, starts)
        scaling = "official" if net.published_code else "sum"
        return cls.base()(
            keras.Sequential(layers, name="primary"),
            routing_layer(settings, starts),
            image_shape,
            starts.decoder(DECODERS[net.decoder], seen),
            MarginLoss(absent_weight=net.absent_weight, scaling=scaling),
            net.reconstruction_weight,
            view,
            name="capsnet",
        )

    @classmethod
    def baseline_layers(cls, net, view, dtype, starts):
        layers = [Standardize(dtype="float32")] if view is not None else []
        if net.body == "capsules":
            layers += plain_convolutions(net.filters, net.units is None, dtype, starts)
        else:
            layers += convolutions(net.body, dtype, starts)
        is_any_size = net.body == "places"
        pooled = keras.layers.GlobalAveragePooling2D if is_any_size else keras.layers.Flatten
        return [*layers, pooled(dtype="float32")]

    def described(self, seen):
        shapes = {
            "primary capsules": tuple(self.primary.compute_output_shape((None, *seen))[1:]),
            "class capsules": (self.capsules, self.dim),
        }
        return shapes, {name: getattr(self, name) for name in ("primary", "routing", "decoder")}

    def build(self, input_shape=None):
        if self.built:
            return
        self.need_parts()
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
        return ops.stack(self._router(x).history(x)[1], axis=1)

    @property
    def routing_places(self):
        """Height and width of the map of primary capsules, or None if routing has no such steps."""
        types = getattr(self.primary.layers[-1], "types", 0)
        if not types or self.view is not None or self.routing_iterations == 1:
            return None
        places = self.primary.compute_output_shape((None, *self.image_shape))[1] // types
        side = math.isqrt(places)
        return (side, side) if side * side == places else None

    def routing_steps(self, images):
        """Return `coefficients` (B, T, h, w, J) and `probabilities` (B, T, J) by iteration."""
        x = self.primary(self._seen(images), training=False)
        return routing_steps(self._router(x), self.routing.units, x, self.routing_places)

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
        parts = ("primary", "routing", "margin") if self.is_fitted else ()
        serialize = keras.saving.serialize_keras_object
        return {**super().get_config(), **{name: serialize(getattr(self, name)) for name in parts}}
