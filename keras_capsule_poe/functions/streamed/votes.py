"""Agreement of votes with vectors on the side of the outputs, and its gradient."""

from collections import namedtuple

import numpy as np
from keras import backend, ops

# Scaled inputs, their scales, and 1/|vote| as blocks; the last two are None for dots.
Lengths = namedtuple("Lengths", ["x", "size", "inverse"])


class BlockAgreement:
    """Agreement y_j . W_ij x_i, or y_j . W_ij x_i/|W_ij x_i| for `kind="cosine"`."""

    def __init__(self, maps, kind):
        self._maps = maps
        self._is_cosine = kind == "cosine"
        if not self._is_cosine:
            return
        # Unit scales of maps and inputs keep all squares in the range of floats. A vote shorter
        # than rounding counts as that long. With many inputs, |W_ij x_i|^2 is computed as
        # x_i^T (W_ij^T W_ij) x_i, because W^T W is the same for all images.
        kernel = maps.kernel
        self._unit = ops.maximum(ops.maximum(ops.max(kernel), -ops.min(kernel)), 1e-30)
        self._scaled = kernel / self._unit
        if maps.inputs_are_many:
            gram = ops.matmul(ops.transpose(self._scaled, (0, 1, 3, 2)), self._scaled)
            self._gram = ops.reshape(gram, (maps.many, maps.few, -1))
            squares = ops.transpose(ops.sum(ops.diagonal(gram, axis1=2, axis2=3), axis=2))
        else:
            squares = ops.sum(ops.square(self._scaled), axis=(2, 3))
        rounding = float(np.finfo(backend.standardize_dtype(kernel.dtype)).eps)
        floors = ops.maximum(squares * rounding**2, 1e-30)
        self._floors = maps.split(floors[:, None, None])

    def measure(self, x):
        """Return the `Lengths` of the votes, for inputs in the layout of the maps."""
        if not self._is_cosine:
            return Lengths(x, None, None)
        size = ops.max(ops.abs(x), axis=self._maps.input_axis, keepdims=True, initial=0.0)
        size = ops.where(ops.equal(size, 0), ops.ones_like(size), size)
        x = x / size
        inverse = [
            ops.rsqrt(ops.maximum(square, floor))
            for square, floor in zip(self._squares(x), self._floors)
        ]
        return Lengths(x, size, inverse)

    def measure_slopes(self, measured):
        """Return the `Lengths` for gradients: `1/|vote|` is zero for votes below rounding."""
        if not self._is_cosine:
            return measured
        inverse = [
            ops.where(inverse < ops.rsqrt(floor), inverse, ops.zeros_like(inverse))
            for inverse, floor in zip(measured.inverse, self._floors)
        ]
        return measured._replace(inverse=inverse)

    def of(self, measured, y):
        """Return the agreements of y, as blocks `(group, B, 1, M)`."""
        if not self._is_cosine:
            return self._maps.agreement(y, measured.x)
        blocks = self._maps.agreement(y / self._unit, measured.x)
        return [block * inverse for block, inverse in zip(blocks, measured.inverse)]

    def gradient(self, measured, y, upstream):
        """Return the gradients of `of` in y, x and the maps, for constant lengths."""
        if self._is_cosine:
            factors = [inverse / self._unit for inverse in measured.inverse]
            upstream = [block * factor for block, factor in zip(upstream, factors)]
        in_y = self._maps.up(upstream, measured.x)
        in_x = self._maps.down(upstream, y)
        return in_y, in_x, self._maps.correlation(upstream, y, measured.x)

    def gradient_of_lengths(self, measured, products):
        """Return the gradient in x through the votes' lengths, and sums over images."""
        # cosine = agreement / |v|, so its gradient in v through |v| is -cosine v / |v|^2.
        # `products` is cosine times the gradient in it.
        weights = [
            -block * ops.square(inverse) for block, inverse in zip(products, measured.inverse)
        ]
        maps, x = self._maps, measured.x
        if maps.inputs_are_many:
            weights = ops.squeeze(ops.concatenate(weights, axis=0), axis=2)
            weights = ops.transpose(weights, (2, 0, 1))
            grams = ops.matmul(ops.transpose(self._gram, (0, 2, 1)), weights)
            grams = ops.reshape(grams, (maps.many, maps.many_dim, maps.many_dim, -1))
            rows = ops.transpose(x, (2, 1, 0))
            in_x = ops.sum(grams * rows[:, None], axis=2)
            sums = ops.matmul(weights, ops.transpose(_outer_products(rows), (0, 2, 1)))
            return ops.transpose(in_x, (2, 1, 0)), sums
        votes = maps.products(x / self._unit)
        votes = [weight / self._unit * vote for weight, vote in zip(weights, votes)]
        sums = [
            ops.matmul(ops.transpose(few, (0, 2, 1)), maps.flat(vote))
            for few, vote in zip(maps.split(x), votes)
        ]
        return maps.transposed_products(votes), ops.concatenate(sums, axis=0)

    @property
    def sums_shape(self):
        """Shape of the sums over images in `gradient_of_lengths`."""
        if not self._is_cosine:
            return ()
        return self._gram.shape if self._maps.inputs_are_many else self._maps.flat_shape

    def gradient_of_sums(self, sums):
        """Return the gradient in the kernel (I, J, E, D) from the sums over images."""
        maps = self._maps
        if not maps.inputs_are_many:
            return maps.unlay_maps(maps.split(sums))
        shape = (maps.many, maps.few, maps.many_dim, maps.many_dim)
        return ops.matmul(self._scaled, ops.reshape(sums, shape) / self._unit)

    def _squares(self, x):
        """Return |W_ij x_i|^2 in units of the maps' size, as blocks `(group, B, 1, M)`."""
        maps = self._maps
        if not maps.inputs_are_many:
            votes = maps.products(x / self._unit)
            return [ops.sum(ops.square(vote), axis=2, keepdims=True) for vote in votes]
        squares = ops.matmul(self._gram, _outer_products(ops.transpose(x, (2, 1, 0))))
        return maps.split(ops.transpose(squares, (1, 2, 0))[:, :, None])


def _outer_products(x):
    """Return all products x_d x_d', from (M, R, B) to (M, R*R, B)."""
    products = x[:, :, None] * x[:, None]
    return ops.reshape(products, (x.shape[0], x.shape[1] ** 2, -1))
