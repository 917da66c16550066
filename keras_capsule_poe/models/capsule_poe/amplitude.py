"""Codes with an amplitude: the vector v of a capsule's own frame in homogeneous coordinates.

The paper leaves capsules of S^m x R^n x (0, 1) to future work: an orientation, further coordinates
and a probability. A code with an amplitude has n = 1. In the frame of its expert, z is the vector
`v = C^(-1/2) (z - m)` with unit variance in each of E dimensions. Its direction is the
orientation, and `r = |v|/sqrt(E)` is the amplitude, about one on average. The code

    x = p (v/sqrt(E), 1)/sqrt(1 + r^2)

has E + 1 dimensions and the length p, the probability. Without an amplitude it is `p v/|v|`.
"""

from keras import ops

from keras_capsule_poe.core.numerics import at_least_float32, direction, length

# Few images lie farther out in the frame of their expert. Linear maps would extrapolate there, so
# they are drawn in to this amplitude: without it a few images hold a third of the squared error.
LARGEST_AMPLITUDE = 1.5


def with_amplitude(v):
    """Return unit vectors (..., E + 1) of frame vectors v (..., E)."""
    v = at_least_float32(v)
    scaled = v / v.shape[-1] ** 0.5
    return direction(ops.concatenate([scaled, ops.ones_like(scaled[..., :1])], axis=-1))


def frame_vectors(x):
    """Return v (..., E) of codes (..., E + 1) of any length, the inverse of `with_amplitude`."""
    x = at_least_float32(x)
    across, last = x[..., :-1], x[..., -1:]
    size = length(across, keepdims=True)
    is_near = size <= LARGEST_AMPLITUDE * last
    near, far = 1 / ops.maximum(last, 1e-30), LARGEST_AMPLITUDE / ops.maximum(size, 1e-30)
    return (x.shape[-1] - 1) ** 0.5 * across * ops.where(is_near, near, far)
