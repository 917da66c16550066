"""From hidden capsules down, where each visible capsule has one latent parent.

Given h the visible capsules are independent, and their states can be summed out:

    P(c_i = j | h) = softmax_j(-F_i(b_i + s W_ij^T y_j)),    v_i given c_i = j and h as ever,

F_i the free energy of the units of capsule i at what they receive.
"""

from keras import ops

from keras_capsule_poe.functions.randomness import draw_index


def parents_given_hidden(harmonium, y, scale, seed):
    """Parents of the visible capsules drawn given the hidden ones, the visible units summed out.

    Args:
        harmonium: `Harmonium` of maps between capsules; its coefficients are not used.
        y: Tensor (B, J, E), what the hidden units send.
        scale: float, s.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

    Returns:
        Tensor (B, I, J), s times the parents, one-hot.

    Examples:

    >>> from keras_capsule_poe.functions import EinsumMaps, Harmonium
    >>> maps = EinsumMaps(ops.ones((6, 5, 3, 4)))
    >>> machine = Harmonium(maps, coefficients=ops.ones((6, 5)))
    >>> parents_given_hidden(machine, ops.ones((2, 5, 3)), 1.0, seed=0).shape
    TensorShape([2, 6, 5])
    """
    kernel = harmonium.maps.kernel
    votes = ops.einsum("ijed,bje->bijd", kernel, ops.cast(y, kernel.dtype))
    fields = harmonium.visible_bias[:, None] + scale * votes
    # Centred units have an offset for each capsule, (I, D).
    units = harmonium.visible.laid(lambda offset: ops.expand_dims(offset, -2))
    parent = draw_index(-units.free_energy(fields), seed)
    return scale * ops.one_hot(parent, kernel.shape[1], dtype=kernel.dtype)
