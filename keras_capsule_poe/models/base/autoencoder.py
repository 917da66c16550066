"""The convolutional autoencoder whose frozen feature map the capsules model."""

import contextlib
import math
from collections import namedtuple
from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import Configured, below_one, not_negative
from keras_capsule_poe.core.fused.convolution import ROUGH
from keras_capsule_poe.core.numerics import StatelessSeed, share, streams, whole_number
from keras_capsule_poe.core.sharding import draw_rows, drop_rows
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.layers.convolutions import FastConv2D, FastConv2DTranspose
from keras_capsule_poe.models.base.inputs import (
    PIXELS,
    FittedModel,
    check_values,
    in_a_row,
    is_array,
)
from keras_capsule_poe.models.base.settings import SMALLEST_IMAGE
from keras_capsule_poe.models.base.sharing import SharedOutGradients

STRIDE = 2

AutoencoderShapes = namedtuple("AutoencoderShapes", ["inner", "features", "operations"])


def outer_kernel(image_shape, kernel_size):
    """Return the outer kernel's height and width: K, or K + 1 along an axis of even size."""
    return tuple(kernel_size + (size - 1) % STRIDE for size in image_shape[:2])


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvAutoencoder(Configured, SharedOutGradients, FittedModel, keras.Model):
    """Convolutional autoencoder with two convolutions and two transposed convolutions.

    The encoder has convolutions of stride 1 and 2, with leaky ReLUs, and dropout between them. The
    decoder mirrors it and ends with a sigmoid. Training is by backpropagation with the input as
    the target. The capsule models then keep the weights frozen.

    Args:
        filters: Integer F, the channels of the feature map.
        kernel_size: Integer K, the filter size. The outer filters have size K + 1 along an axis of
            even size, so that they cover the last row of pixels.
        dropout: Float in `[0, 1)`, the dropout rate after the first convolution.
        negative_slope: Float in `[0, 1]`, the slope of the leaky ReLU.
        seed: Integer, for the initial weights, the dropout and the noise.
        feature_noise: Float of at least 0, the standard deviation of Gaussian noise on the
            features in training, as a multiple of the standard deviation over all features of an
            image. The decoder then learns to draw from features that no image has.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`. H and W are at least 20.

    Returns:
        Tensor (B, H, W, C), float32, pixels in `[0, 1]`.

    Raises:
        ValueError: If an argument is out of range, or the images have a wrong rank or size.
        RuntimeError: If `fit` runs on another backend than TensorFlow and JAX.

    Example:

    >>> model = ConvAutoencoder(filters=4)
    >>> model.compile("sgd", "binary_crossentropy", jit_compile=False)
    >>> images = np.random.default_rng(0).uniform(size=(2, 20, 20, 1)).astype("float32")
    >>> history = model.fit(images, verbose=0)
    >>> model.encode(images).shape
    TensorShape([2, 2, 2, 4])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), the convolutional autoencoder
    - [Ghosh et al., 2020](https://arxiv.org/abs/1903.12436), noise on the code of an autoencoder
    """

    def __init__(
        self,
        filters: int = 128,
        kernel_size: int = 9,
        dropout: float = 0.1,
        negative_slope: float = 0.2,
        seed: int = 0,
        feature_noise: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = whole_number("filters", filters)
        self.kernel_size = whole_number("kernel_size", kernel_size)
        self.dropout = below_one("dropout", dropout)
        self.negative_slope = share("negative_slope", negative_slope, or_zero=True)
        self.seed = seed
        self.feature_noise = not_negative("feature_noise", feature_noise)
        self._fast_contexts = 0
        self._given_step = None
        self.rectifier = keras.layers.LeakyReLU(
            negative_slope, dtype=self.dtype_policy, name="rectifier"
        )
        self.sigmoid = keras.layers.Activation("sigmoid", dtype="float32", name="sigmoid")

    @staticmethod
    def shapes(image_shape, filters=128, kernel_size=9):
        """Compute the shapes inside the autoencoder without building it.

        Returns:
            Named tuple `(inner, features, operations)`: the shapes (h, w, F) after both
            convolutions, and the arithmetic operations that encode and decode one image.

        Raises:
            ValueError: If the images have a wrong rank or are too small for the filters.

        Example:

        >>> ConvAutoencoder.shapes((28, 28, 1), filters=128).features
        (6, 6, 128)
        """
        shape = tuple(image_shape)
        if len(shape) != 3 or None in shape or min(shape[:2]) < SMALLEST_IMAGE:
            raise ValueError(
                "`images` must have shape (batch, height, width, channels), height and width "
                f"known and at least {SMALLEST_IMAGE}. Received: image_shape={shape}"
            )
        kernel = outer_kernel(shape, kernel_size)
        inner = tuple(size - k + 1 for size, k in zip(shape, kernel, strict=False))
        if min(inner) < kernel_size:
            raise ValueError(
                f"`kernel_size` is too large for the images. Received: "
                f"kernel_size={kernel_size}, image_shape={shape}"
            )
        reduced = tuple((size - kernel_size) // STRIDE + 1 for size in inner)
        # A convolution and its transposed convolution cost the same.
        outer = 2 * math.prod(kernel) * filters * shape[2] * math.prod(inner)
        middle = 2 * kernel_size**2 * filters * filters * math.prod(reduced)
        return AutoencoderShapes((*inner, filters), (*reduced, filters), 2 * (outer + middle))

    def build(self, input_shape):
        shape = tuple(input_shape)
        shapes = self.shapes(shape[1:], self.filters, self.kernel_size)
        inner = shapes.inner[:2]
        outer, middle = outer_kernel(shape[1:], self.kernel_size), self.kernel_size
        down, up = FastConv2D, FastConv2DTranspose
        self.convolution = self._filters(down, "convolution", 0, self.filters, outer)
        self.reduction = self._filters(down, "reduction", 1, self.filters, middle, STRIDE)
        self.expansion = self._filters(up, "expansion", 2, self.filters, middle, STRIDE)
        self.deconvolution = self._filters(up, "deconvolution", 3, shape[-1], outer)
        self.feature_shape = shapes.features
        self.image_shape = shape[1:]
        self.convolution.build(shape)
        self.reduction.build((None, *inner, self.filters))
        self.expansion.build((None, *self.feature_shape))
        self.deconvolution.build((None, *inner, self.filters))
        self.built = True

    def _filters(self, kind, name, number, channels, kernel, stride=1):
        return kind(
            channels,
            kernel,
            strides=stride,
            kernel_initializer=keras.initializers.GlorotUniform(seed=4 * self.seed + number),
            dtype=self.dtype_policy,
            name=name,
        )

    def encode(self, images: Tensor, training: bool = False) -> Tensor:
        """Encode images (B, H, W, C), pixels in `[0, 1]`, to feature maps (B, h, w, F)."""
        hidden = self.rectifier(self.convolution(images))
        if training and self.dropout:
            hidden = drop_rows(hidden, self.dropout, StatelessSeed(self.seed, self._step))
        return self.rectifier(self.reduction(hidden, training=training or self._fast_contexts > 0))

    @property
    def _step(self):
        # The optimizer's step: a resumed run then repeats the same random numbers.
        if self._given_step is not None:
            return self._given_step
        optimizer = getattr(self, "optimizer", None)
        return optimizer.iterations if optimizer else 0

    def _with_noise(self, features):
        """Return features (B, h, w, F) with Gaussian noise, in proportion to those of the image."""
        values = ops.stop_gradient(ops.cast(features, "float32"))
        deviation = self.feature_noise * ops.std(values, axis=(1, 2, 3), keepdims=True)
        # A stream of its own: the masks of the dropout are those without noise.
        (seed,) = streams(StatelessSeed(self.seed, self._step), 1)
        noise = draw_rows(keras.random.normal, tuple(ops.shape(values)), seed=seed)
        return features + ops.cast(deviation * noise, features.dtype)

    @property
    def is_fast(self):
        """True inside `fast`."""
        return self._fast_contexts > 0

    @contextlib.contextmanager
    def fast(self):
        """Context manager: use fast approximate convolutions in `encode` and `decode`.

        Results keep three to four digits in float32 on a CPU, see `FastConv2D`. The setting
        affects all threads, and all graphs traced inside the context. `predict` keeps the form of
        its first trace.
        """
        self._fast_contexts += 1
        large = self.reduction, self.expansion
        for layer in large:
            # None: half precision keeps its default limits.
            layer.limits = ROUGH if layer.compute_dtype == "float32" else None
        try:
            yield
        finally:
            self._fast_contexts -= 1
            for layer in large if not self._fast_contexts else ():
                layer.limits = None

    def decode(self, features: Tensor, training: bool = False) -> Tensor:
        """Decode feature maps (B, h, w, F) to float32 images (B, H, W, C), pixels in `[0, 1]`."""
        training = training or self._fast_contexts > 0
        hidden = self.rectifier(self.expansion(features, training=training))
        return self.sigmoid(self.deconvolution(hidden, training=training))

    def call(self, images, training=False):
        features = self.encode(images, training=training)
        if training and self.feature_noise:
            features = self._with_noise(features)
        made = self.decode(features, training=training)
        sizes = images.shape[1:3], made.shape[1:3]
        if None not in (*sizes[0], *sizes[1]) and sizes[0] != sizes[1]:
            raise ValueError(
                "`images` must be an even number of pixels larger or smaller than those that the "
                f"model was built for, of {'x'.join(map(str, self.image_shape[:2]))}. "
                f"Received: {'x'.join(map(str, sizes[0]))}"
            )
        return made

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """Train as `keras.Model.fit`, with the images as default targets.

        Args:
            x: Images (N, H, W, C), pixels in `[0, 1]` or bytes of dtype uint8; or batches of
                pixels as a `tf.data.Dataset`, `PyDataset` or generator.
            y: Targets, by default the images.
            **kwargs: Further arguments of `keras.Model.fit`.

        Returns:
            `keras.callbacks.History`.

        Raises:
            ValueError: If pixels are not finite or out of range.
        """
        x, kwargs = _pixels(x), _with_weights(kwargs)
        # Keras needs targets here: a strategy computes a loss before `train_step`, and without
        # targets Keras drops the sample weights.
        return super().fit(x, _targets(x, y), **kwargs)

    def evaluate(self, x=None, y=None, **kwargs):
        """Evaluate as `keras.Model.evaluate`, with the images as default targets."""
        x, kwargs = _pixels(x), _with_weights(kwargs)
        return super().evaluate(x, _targets(x, y), **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **options):
        # JAX also computes a loss before the first step, without targets.
        return self.whole_loss(
            super().compute_loss(
                x, x if y is None else y, y_pred, _of_pixels(sample_weight), **options
            )
        )

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        weights = _of_pixels(sample_weight)
        return super().compute_metrics(x, x if y is None else y, y_pred, weights)

    @property
    def bounds(self):
        return PIXELS

    def train_step(self, *arguments):
        *state, data = arguments
        images, _, weights = keras.utils.unpack_x_y_sample_weight(data)
        # On JAX the current step is in the given state, not in the variables.
        self._given_step = self._step_of(state[0][2]) if state else None
        try:
            return super().train_step(*state, _pair(images, weights))
        finally:
            self._given_step = None

    def _step_of(self, values):
        """Return the step count stored in the values of the optimizer's variables."""
        with keras.StatelessScope(list(zip(self.optimizer.variables, values, strict=True))):
            return ops.convert_to_tensor(self.optimizer.iterations)

    def test_step(self, *arguments):
        *state, data = arguments
        images, _, weights = keras.utils.unpack_x_y_sample_weight(data)
        return super().test_step(*state, _pair(images, weights))


def _pixels(x):
    """Return bytes of dtype uint8 as pixels, and other data as they are."""
    if not is_array(x) or keras.backend.standardize_dtype(x.dtype) != "uint8":
        return x
    check_values(x, bytes_too=True)
    return to_pixels(x)


def _with_weights(options):
    """Return options with sample weights (N,)."""
    weights = options.get("sample_weight")
    return options if weights is None else {**options, "sample_weight": in_a_row(weights)}


def _targets(x, y):
    # Datasets get their targets in `train_step`.
    return x if y is None and hasattr(x, "shape") else y


def _pair(images, weights):
    return keras.utils.pack_x_y_sample_weight(images, images, weights)


def _of_pixels(weights):
    """Reshape image weights (B,) or (B, 1) to (B, 1, 1), to multiply pixel errors."""
    if weights is None or tuple(weights.shape[1:]) not in ((), (1,)):
        return weights
    return ops.reshape(weights, (-1, 1, 1))


class AutoencodedModel:
    """Mixin for a `keras.Model` of the features of its `autoencoder`."""

    @property
    def image_shape(self):
        """Image shape (H, W, C), available once the autoencoder is built."""
        return tuple(self.autoencoder.image_shape)

    def to_features(self, images):
        """Return the feature maps (B, h, w, F) of images (B, H, W, C)."""
        return self.autoencoder.encode(images)

    def from_features(self, features):
        """Decode feature maps (B, h, w, F) to images (B, H, W, C)."""
        return self.autoencoder.decode(features)
