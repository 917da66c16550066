"""The mean-field chain of capsules as a retrieval map, and its Lyapunov function.

G(x, y) = sum_ij c_ij y_j . W_ij x_i - sum_i Phi*(x_i) - sum_j Phi*(y_j). Each half-step of the
chain maximises G in y or x. At the best y, G is L(x) = sum_j Phi(z_j) - sum_i Phi*(x_i).
"""

from keras import ops

from keras_capsule_poe.core.numerics import length


def potential(z, axis=-1):
    """Return Phi(z) = |z| - atan|z|, whose gradient is squash(z), summed over `axis`."""
    n = length(z, axis=axis)
    return n - ops.arctan(n)


def conjugate(x, axis=-1):
    """Return the convex conjugate Phi*(x) in `[0, pi/2]`, whose gradient is unsquash(x)."""
    n = ops.minimum(length(x, axis=axis), 1)
    # arctan2 also covers length one.
    return ops.arctan2(ops.sqrt(n), ops.sqrt(1 - n)) - ops.sqrt(n * (1 - n))


def lyapunov(maps, x, coefficients, hidden_bias=None):
    """Return L(x) (B,), which the mean-field chain with fixed coefficients never lowers."""
    z = maps.unlay_outputs(maps.up(maps.lay_pairs(coefficients), maps.lay_inputs(x)))
    z = z if hidden_bias is None else z + hidden_bias
    return ops.sum(potential(z), axis=-1) - ops.sum(conjugate(x), axis=-1)
