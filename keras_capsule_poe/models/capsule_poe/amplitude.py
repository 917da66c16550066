"""Codes with an amplitude: the vector v of a capsule's own frame in homogeneous coordinates.

The paper (Section 6) proposes capsules of S^m x R^n x (0, 1): orientation, appearance and
probability. A code with an amplitude has n = 1. In the frame of its expert, z is the vector
`v = C^(-1/2) (z - m)` with unit variance in each of E dimensions. Its direction is the
orientation, and `r = |v|/sqrt(E)` is the amplitude, about one on average. The code

    x = p (v/sqrt(E), 1)/sqrt(1 + r^2)

has E + 1 dimensions and the length p, the probability. Without an amplitude it is `p v/|v|`.
"""

from keras import ops

from keras_capsule_poe.core.numerics import at_least_float32, direction, length

# Codes that hardly belong to an expert lie far outside its frame. They are drawn in to this.
LARGEST_AMPLITUDE = 4.0


def with_amplitude(v):
    """Return unit vectors (..., E + 1) of frame vectors v (..., E)."""
    v = at_least_float32(v)
    scaled = v / v.shape[-1] ** 0.5
    return direction(ops.concatenate([scaled, ops.ones_like(scaled[..., :1])], axis=-1))


def frame_vectors(x):
    """Return v (..., E) of codes (..., E + 1) of any length, the inverse of `with_amplitude`."""
    x = at_least_float32(x)
    # The last coordinate of a unit vector is 1/sqrt(1 + r^2).
    least = length(x, keepdims=True) / (1 + LARGEST_AMPLITUDE**2) ** 0.5
    last = ops.maximum(x[..., -1:], ops.maximum(least, 1e-30))
    return (x.shape[-1] - 1) ** 0.5 * x[..., :-1] / last
