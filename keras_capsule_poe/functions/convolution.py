"""Convolutions as a training step computes them, and as they are defined."""

import keras
from keras import ops

from keras_capsule_poe.functions.fast_convolution import HALF, SINGLE, fast_convolution
from keras_capsule_poe.functions.laying_down import lay_down, pays
from keras_capsule_poe.functions.processor import on_processor


def convolve(x, kernel, strides=1, padding="valid", fast=False, limits=None):
    """Filters over maps.

    Args:
        x: Tensor (B, H, W, C).
        kernel: Tensor (K, K, C, O).
        strides: int, along both axes.
        padding: `"valid"` or `"same"`.
        fast: bool, whether by few multiplications, where that pays: on a processor, for many
            channels and large filters. It transforms the filters each time, which large batches
            are worth. The same numbers but for rounding; half precision is computed in float32.
        limits: `Limits` of the fast form; None: those of the dtype.

    Returns:
        Tensor (B, h, w, O).

    Examples:

    >>> x, kernel = np.ones((2, 20, 20, 64), "float32"), np.ones((9, 9, 64, 96), "float32")
    >>> plain = convolve(x, kernel, strides=2)
    >>> float(abs(convolve(x, kernel, strides=2, fast=True) / plain - 1).numpy().max()) < 1e-4
    True
    """
    x, kernel = ops.convert_to_tensor(x), ops.convert_to_tensor(kernel)
    before, after = _padding(x.shape[1:3], kernel.shape[:2], strides, padding)
    sizes = [a + size + b for a, size, b in zip(before, x.shape[1:3], after) if size]
    quick = _fast(x, kernel.shape, sizes, strides, limits) if fast and len(sizes) == 2 else None
    if quick is None:
        return ops.conv(x, kernel, strides=strides, padding=padding, data_format="channels_last")
    around = ((0, 0), *zip(before, after), (0, 0))
    return _in_full(quick, ops.pad(x, around) if any(map(sum, around)) else x, kernel)


def transposed(y, kernel, strides=1, fast=False, limits=None):
    """The transpose of `convolve` without padding: each number of y lays down its filters.

    Args:
        y: Tensor (B, h, w, O).
        kernel: Tensor (K, K, C, O).
        strides: int.
        fast, limits: See `convolve`; also fast for few channels, see `lay_down`.

    Returns:
        Tensor (B, H, W, C), H = strides (h - 1) + max(K, strides).
    """
    y, kernel = ops.convert_to_tensor(y), ops.convert_to_tensor(kernel)
    if fast and None not in y.shape[1:3] and on_processor() and pays(kernel.shape, strides):
        return _in_full(lay_down, y, kernel)
    sizes = [strides * (size - 1) + k for size, k in zip(y.shape[1:3], kernel.shape[:2]) if size]
    quick = _fast(y, kernel.shape, sizes, strides, limits) if fast and len(sizes) == 2 else None
    if quick is None or strides > min(kernel.shape[:2]):
        return ops.conv_transpose(
            y, kernel, strides=strides, padding="valid", data_format="channels_last"
        )
    return _in_full(quick.transpose, y, kernel)


def fast_share(sizes, kernel_shape, strides=1, padding="valid", dtype="float32"):
    """What `convolve` takes in training, as a share of the plain form's multiplications.

    Args:
        sizes: (H, W) of the maps.
        kernel_shape: (K, K, C, O).
        strides, padding: See `convolve`.
        dtype: str, of the maps.

    Examples:

    >>> fast_share((20, 20), (9, 9, 1, 256))
    1.0
    """
    before, after = _padding(sizes, kernel_shape[:2], strides, padding)
    padded = tuple(a + size + b for a, size, b in zip(before, sizes, after))
    quick = _quick(padded, kernel_shape, strides, dtype)
    return quick.share(*kernel_shape[2:]) if quick else 1.0


def _fast(x, kernel_shape, sizes, strides, limits):
    dtype = keras.backend.standardize_dtype(x.dtype)
    return _quick(sizes, kernel_shape, strides, dtype, limits)


def _quick(sizes, kernel_shape, strides, dtype, limits=None):
    if not on_processor():
        return None
    limits = limits or (HALF if _is_half(dtype) else SINGLE)
    return fast_convolution(tuple(sizes), tuple(kernel_shape), strides, limits)


def _is_half(dtype):
    return dtype in ("bfloat16", "float16")


def _in_full(function, x, kernel):
    """A function of maps and filters whose sums half precision would have no digits for."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not _is_half(dtype):
        return function(x, kernel)
    y = function(ops.cast(x, "float32"), ops.cast(kernel, "float32"))
    return ops.cast(y, dtype)


def _padding(sizes, taps, strides, padding):
    """Zeros before and after both axes; as much at the end, or one more, for "same"."""
    if padding == "valid" or None in sizes:
        return (0, 0), (0, 0)
    most = [max((-(-n // strides) - 1) * strides + k - n, 0) for n, k in zip(sizes, taps)]
    return tuple(total // 2 for total in most), tuple(total - total // 2 for total in most)
