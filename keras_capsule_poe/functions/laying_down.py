"""Transposed convolutions to few channels: one product and col2im (im2col for the gradient)."""

from keras import ops

from keras_capsule_poe.functions.gradients import custom_gradient

# Minimum number of filter taps for which this pays.
LEAST_TAPS = 25


def pays(kernel_shape, strides):
    """Return whether `lay_down` is faster than a library and takes little memory."""
    rows, columns, channels, filters = kernel_shape
    taps = rows * columns
    return strides == 1 and taps >= LEAST_TAPS and taps * channels <= filters


def lay_down(y, kernel):
    """Transposed convolution of stride one, from y (B, h, w, O) to (B, h + K - 1, w + L - 1, C)."""
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

    # The cast makes a variable a tensor; a custom gradient does not treat it as an argument.
    return laid_down(y, ops.cast(kernel, y.dtype))[0]


def _added(parts, axis):
    """Return the sum of parts (K, ...), with the k-th shifted by k along an axis."""
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
