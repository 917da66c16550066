"""The mean-field chain of capsules as a retrieval map, and the function that it climbs.

squash is the gradient of Phi(z) = |z| - atan|z|, whose convex conjugate is
Phi*(x) = atan(r) - sqrt(|x| (1 - |x|)), r = sqrt(|x|/(1 - |x|)). With fixed coefficients

    G(x, y) = sum_ij c_ij y_j . W_ij x_i - sum_i Phi*(x_i) - sum_j Phi*(y_j)

is largest in y at y_j = squash(z_j), and in x at x_i = squash(z~_i): one pass of the chain climbs
G twice, one side at a time. With y at its best, G is L(x) = sum_j Phi(z_j) - sum_i Phi*(x_i).
"""

from keras import ops

from keras_capsule_poe.functions.norms import length


def potential(z, axis=-1):
    """Phi(z) = |z| - atan|z|, whose gradient is squash(z); (...), the vector's axis summed out.

    Examples:

    >>> float(potential(np.zeros((1, 3)))[0])
    0.0
    """
    n = length(z, axis=axis)
    return n - ops.arctan(n)


def conjugate(x, axis=-1):
    """Phi*(x) = atan(r) - sqrt(|x|(1-|x|)), r = sqrt(|x|/(1-|x|)), whose gradient is unsquash(x).

    Phi(z) + Phi*(squash(z)) = z . squash(z), and for any other x the left side is larger.

    Args:
        x: Tensor (..., D) of length at most one.
        axis: The axis that holds the vector.

    Returns:
        Tensor (...), from zero to pi/2.

    Examples:

    >>> round(2 * float(conjugate(np.array([[1.0, 0.0]]))[0]), 4)
    3.1416
    """
    n = ops.minimum(length(x, axis=axis), 1)
    # atan2 knows the length one, where r is infinite.
    return ops.arctan2(ops.sqrt(n), ops.sqrt(1 - n)) - ops.sqrt(n * (1 - n))


def lyapunov(maps, x, coefficients, hidden_bias=None):
    """L(x) = sum_j Phi(z_j) - sum_i Phi*(x_i), which the mean-field chain never lowers.

    With the coefficients fixed, L(x') >= L(x) for x' = `chain_step(maps, x, coefficients)`, so
    that the chain settles: it retrieves a fixed point, as a Hopfield network does.

    Args:
        maps: `EinsumMaps` or `BlockMaps`.
        x: Tensor (B, I, D), squashed.
        coefficients: Tensor (B, I, J), fixed.
        hidden_bias: Tensor (J, E), that of the chain; or None.

    Returns:
        Tensor (B,).

    Examples:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> maps, x = EinsumMaps(ops.ones((6, 5, 3, 4))), ops.zeros((2, 6, 4))
    >>> lyapunov(maps, x, ops.ones((2, 6, 5))).shape
    TensorShape([2])

    Reference:

    - [Hopfield, 1984](https://doi.org/10.1073/pnas.81.10.3088)
    """
    z = maps.unlay_outputs(maps.up(maps.lay_pairs(coefficients), maps.lay_inputs(x)))
    z = z if hidden_bias is None else z + hidden_bias
    return ops.sum(potential(z), axis=-1) - ops.sum(conjugate(x), axis=-1)
