"""Latent parents of the visible capsules, given the hidden capsules.

With F_i the free energy of capsule i and the visible states summed out,
P(c_i = j | h) = softmax_j(-F_i(b_i + s W_ij^T y_j)).
"""

from keras import ops

from keras_capsule_poe.functions.randomness import draw_index


def parents_given_hidden(harmonium, y, scale, seed):
    """Sample coefficients (B, I, J), s times one-hot parents, given hidden states y (B, J, E)."""
    kernel = harmonium.maps.kernel
    votes = ops.einsum("ijed,bje->bijd", kernel, ops.cast(y, kernel.dtype))
    fields = harmonium.visible_bias[:, None] + scale * votes
    # Centred units have an offset (I, D) per capsule.
    units = harmonium.visible.laid(lambda offset: ops.expand_dims(offset, -2))
    parent = draw_index(-units.free_energy(fields), seed)
    return scale * ops.one_hot(parent, kernel.shape[1], dtype=kernel.dtype)
