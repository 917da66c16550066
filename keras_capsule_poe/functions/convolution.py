"""Convolutions for training steps, in a plain and a fast form."""

import keras
from keras import ops

from keras_capsule_poe.functions.fast_convolution import HALF, SINGLE, fast_convolution
from keras_capsule_poe.functions.laying_down import lay_down, pays
from keras_capsule_poe.functions.processor import on_processor


def convolve(x, kernel, strides=1, padding="valid", fast=False, limits=None):
    """Convolve x (B, H, W, C) with (K, K, C, O); `fast` uses few multiplications if that pays."""
    x, kernel = ops.convert_to_tensor(x), ops.convert_to_tensor(kernel)
    before, after = _padding(x.shape[1:3], kernel.shape[:2], strides, padding)
    sizes = [a + size + b for a, size, b in zip(before, x.shape[1:3], after) if size]
    quick = _fast(x, kernel.shape, sizes, strides, limits) if fast and len(sizes) == 2 else None
    if quick is None:
        return ops.conv(x, kernel, strides=strides, padding=padding, data_format="channels_last")
    around = ((0, 0), *zip(before, after), (0, 0))
    return _in_full(quick, ops.pad(x, around) if any(map(sum, around)) else x, kernel)


def transposed(y, kernel, strides=1, fast=False, limits=None):
    """Return maps (B, H, W, C) of y (B, h, w, O): the transpose of `convolve` without padding."""
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
    """Return the cost of a fast `convolve` as a share of the plain form's, one if plain."""
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
    """Compute half precision in float32, because it has too few digits for the sums."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not _is_half(dtype):
        return function(x, kernel)
    y = function(ops.cast(x, "float32"), ops.cast(kernel, "float32"))
    return ops.cast(y, dtype)


def _padding(sizes, taps, strides, padding):
    """Return the zeros before and after each axis; an odd zero goes to the end."""
    if padding == "valid" or None in sizes:
        return (0, 0), (0, 0)
    most = [max((-(-n // strides) - 1) * strides + k - n, 0) for n, k in zip(sizes, taps)]
    return tuple(total // 2 for total in most), tuple(total - total // 2 for total in most)
