"""A transposed convolution to few channels: each number of a map lays down its filters.

One product and col2im, with im2col for the gradient in the filters.
"""

from keras import ops

from keras_capsule_poe.functions.gradients import custom_gradient

# Taps of a filter, at least, with which it pays.
LEAST_TAPS = 25


def pays(kernel_shape, strides):
    """Whether `lay_down` is faster than the convolution of a library, and takes little memory.

    What is laid down should be no more numbers than the map has.

    Examples:

    >>> pays((9, 9, 1, 128), strides=1), pays((9, 9, 128, 128), strides=1)
    (True, False)
    """
    rows, columns, channels, filters = kernel_shape
    taps = rows * columns
    return strides == 1 and taps >= LEAST_TAPS and taps * channels <= filters


def lay_down(y, kernel):
    """Maps x (B, H, W, C) = Σ over taps (k, l) of y (B, h, w, O) · kernel, moved by (k, l).

    One product of a row for each tap and channel, added up where the taps lie; and as few for
    the gradients. With few channels libraries fill a small part of a processor's registers.

    Args:
        y: Tensor (B, h, w, O).
        kernel: Tensor (K, L, C, O).

    Returns:
        Tensor (B, h + K - 1, w + L - 1, C). Not twice differentiable.

    Examples:

    >>> ops.convert_to_numpy(lay_down(ops.ones((1, 1, 2, 4)), ops.ones((2, 2, 1, 4))))[0, ..., 0]
    array([[4., 8., 4.],
           [4., 8., 4.]], dtype=float32)
    """
    taps, (height, width) = kernel.shape[:2], y.shape[1:3]
    channels, filters = kernel.shape[2:]

    @custom_gradient
    def laid_down(y, kernel):
        flat, rows = ops.reshape(y, (-1, filters)), ops.reshape(kernel, (-1, filters))
        parts = ops.matmul(rows, ops.transpose(flat))
        parts = ops.reshape(parts, (*taps, channels, -1, height, width))
        parts = _added(ops.moveaxis(parts, 1, 0), axis=-1)
        x = ops.transpose(_added(parts, axis=-2), (1, 2, 3, 0))

        def gradient(upstream):
            seen = ops.transpose(upstream, (3, 0, 1, 2))
            seen = ops.stack([seen[..., k : k + width] for k in range(taps[1])])
            seen = ops.stack([seen[..., k : k + height, :] for k in range(taps[0])])
            seen = ops.reshape(seen, (rows.shape[0], -1))
            in_kernel = ops.reshape(ops.matmul(seen, flat), kernel.shape)
            in_y = ops.conv(upstream, kernel, padding="valid", data_format="channels_last")
            return in_y, in_kernel

        return (x,), gradient

    # A variable would be none of the arguments.
    return laid_down(y, ops.cast(kernel, y.dtype))[0]


def _added(parts, axis):
    """The sum of parts (K, ...), the k-th moved by k along an axis."""
    most = parts.shape[0] - 1
    before = [[0, 0]] * (len(parts.shape) - 1)

    def moved(k):
        around = list(before)
        around[axis] = [k, most - k]
        return ops.pad(parts[k], around)

    total = moved(0)
    for k in range(1, most + 1):
        total = total + moved(k)
    return total
