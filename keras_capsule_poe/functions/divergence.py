"""Contrastive-divergence statistics of expert capsules, with the hand-derived gradient.

Every pass of one step uses the same routing coefficients c (Algorithm 1 of Hauser, 2019).
"""

from collections import namedtuple

from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32, folded, length
from keras_capsule_poe.functions.routing import collective, votes
from keras_capsule_poe.functions.squash import squash

Divergence = namedtuple("Divergence", ["gradient", "reconstruction", "z", "z_model"])
Divergence.__doc__ = """One step of contrastive divergence.

`gradient`: ascent direction on log P, of the kernel's shape, averaged over the batch.
`reconstruction`: the visible capsules after one step of the chain, squashed.
`z`, `z_model`: the hidden side before the squash, from the data and after the step.
"""


def backproject(coefficients, kernel, x):
    """Output capsules sent back through the transposed maps: z~_i = sum_j c_ij W_ij^T x_j.

    Args:
        coefficients: Tensor (B, I, J), routing coefficients.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        x: Tensor (B, J, E), squashed output capsules.

    Returns:
        Tensor (B, I, D), input capsules before the squash.
    """
    return ops.einsum("bij,bijd->bid", coefficients, ops.einsum("bje,ijed->bijd", x, kernel))


def damped(z):
    """z/(1+|z|^2), half the gradient of log(1+|z|^2): an expert's pull on its weights.

    Args:
        z: Tensor (..., E), capsules before the squash.

    Returns:
        Tensor of the shape of `z`, of length at most 1/2.
    """
    z = ops.convert_to_tensor(z)
    wide = at_least_float32(z)
    n = length(wide, keepdims=True)
    inverse = 1 / ops.maximum(n, 1)
    # One factor 1/n at a time: 1/n^2 would underflow for a long vector.
    return ops.cast(wide * inverse * (inverse / (1 + ops.square(folded(n)))), z.dtype)


def correlation(coefficients, output, inputs):
    """Batch mean of c_ij y_j x_i^T, c inside the average because it is per image.

    Args:
        coefficients: Tensor (B, I, J).
        output: Tensor (B, J, E).
        inputs: Tensor (B, I, D).

    Returns:
        Tensor (I, J, E, D).
    """
    batch = ops.cast(ops.shape(inputs)[0], inputs.dtype)
    weighted = ops.einsum("bij,bje->bije", coefficients, output)
    return ops.einsum("bije,bid->ijed", weighted, inputs) / batch


def encoder_divergence(x, kernel, coefficients):
    """One step of contrastive divergence for the encoder maps W, without autodiff.

    z_j = sum_i c_ij W_ij x_i; x~_i = squash(sum_j c_ij W_ij^T squash(z_j));
    z~_j = sum_i c_ij W_ij x~_i; and the gradient
    dW_ij = 2 c_ij (z_j x_i^T/(1+|z_j|^2) - z~_j x~_i^T/(1+|z~_j|^2)), averaged over the batch.

    With c held fixed the first term is exactly the gradient of the mean log-probability
    -F(x) in W. With c routed from x it is not: c then depends on W.

    Args:
        x: Tensor (B, I, D), squashed primary capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        coefficients: Tensor (B, I, J), routing coefficients, the same in every pass.

    Returns:
        `Divergence`: gradient (I, J, E, D), reconstruction x~ (B, I, D), z and z~ (B, J, E).

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1 and Equation 18
    """
    x, kernel = at_least_float32(x), at_least_float32(kernel)
    z = collective(votes(x, kernel), coefficients)
    x_model = squash(backproject(coefficients, kernel, squash(z)))
    z_model = collective(votes(x_model, kernel), coefficients)
    data = correlation(coefficients, damped(z), x)
    model = correlation(coefficients, damped(z_model), x_model)
    return Divergence(2 * (data - model), x_model, z, z_model)


def decoder_divergence(x, z, kernel, coefficients, conditional=False):
    """One step of contrastive divergence for the decoder maps U, the encoder frozen.

    z~_i = sum_j e_ji U_ji x_j; x~_j = squash(sum_i e_ji U_ji^T z~_i); and
    dU_ji = 2 e_ji (z_i x_j^T/(1+|z_i|^2) - z~_i x~_j^T/(1+|z~_i|^2)), averaged over the batch.

    Args:
        x: Tensor (B, J, E), squashed expert capsules of the data.
        z: Tensor (B, I, D), primary capsules of the data, before the squash.
        kernel: Tensor (J, I, D, E), decoder maps U_ji.
        coefficients: Tensor (B, J, I), routing coefficients e_ji.
        conditional: bool, whether the second term keeps the data's experts, x~_j = x_j. Then
            the rule learns the primary capsules given the experts, and not the experts.

    Returns:
        `Divergence`: gradient (J, I, D, E), reconstruction x~ (B, J, E) of the expert capsules,
        z the data's and z_model = z~ (B, I, D), the decoded primary capsules before the squash.

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), training of the decoder
    - [Mnih et al., 2011](https://arxiv.org/abs/1202.3748), the conditional form
    """
    x, kernel = at_least_float32(x), at_least_float32(kernel)
    z_model = collective(votes(x, kernel), coefficients)
    x_model = x if conditional else squash(backproject(coefficients, kernel, z_model))
    data = correlation(coefficients, damped(z), x)
    model = correlation(coefficients, damped(z_model), x_model)
    return Divergence(2 * (data - model), x_model, z, z_model)
