"""Importance weights that experts give to a reference distribution, and likelihood gradients."""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.core.divergence import GibbsChain
from keras_capsule_poe.core.maps import DenseMaps
from keras_capsule_poe.core.numerics import at_least_float32
from keras_capsule_poe.core.routing import Router
from keras_capsule_poe.core.units import CAPSULES, free_energy


def expert_log_weight(kernel, coefficients, units=CAPSULES, hidden_bias=None):
    """Return the function x (N, I, D) -> log w(x) = -F(x) (N,) in nats, of a product of experts."""
    kernel = at_least_float32(kernel)
    if isinstance(coefficients, Router):
        if hidden_bias is not None:
            raise ValueError("`hidden_bias` must be None beside a Router. Received: both")
        return lambda x: -free_energy(coefficients.route(x).z, units)
    coefficients = ops.cast(coefficients, kernel.dtype)
    if tuple(coefficients.shape) != tuple(kernel.shape[:2]):
        raise ValueError(
            f"`coefficients` must be a Router or of shape {tuple(kernel.shape[:2])}. "
            f"Received: shape {tuple(coefficients.shape)}"
        )
    inputs, experts, out_dim, in_dim = kernel.shape
    # With coefficients that do not depend on x, all maps form one matrix.
    weighted = ops.transpose(coefficients[:, :, None, None] * kernel, (1, 2, 0, 3))
    maps = DenseMaps(ops.reshape(weighted, (experts * out_dim, inputs * in_dim)))
    bias = 0.0 if hidden_bias is None else ops.cast(hidden_bias, kernel.dtype)

    def log_weight(x):
        z = maps.up(None, ops.reshape(x, (-1, inputs * in_dim)))
        return -free_energy(ops.reshape(z, (-1, experts, out_dim)) + bias, units)

    return log_weight


class ImportanceGradient(NamedTuple):
    """Gradients of mean log P for kernel and bias, and the effective number of draws."""

    gradient: Any
    effective: Any
    hidden_bias: Any = None


def importance_gradient(maps, x, draws, coefficients, units=CAPSULES, hidden_bias=None):
    """Estimate the likelihood gradient; the model term is an importance average over draws."""

    def weighted(x, weights):
        """Return sums over x of weight times c_ij score(z_j) x_i^T."""
        is_router = isinstance(coefficients, Router)
        c, routing = (None, coefficients) if is_router else (coefficients, None)
        chain = GibbsChain(maps, c, routing, units, units, hidden_bias)
        x, _, c = chain.arrays(chain.cast(x))
        inputs, c, z = chain.start(x, c)
        (z,) = chain.unlay(inputs, z)[1:]
        share = weights(-free_energy(z, units))
        score = share[:, None, None] * units.score(z)
        # The weights already contain the mean.
        return chain, share, chain.sums(c, score, inputs, ops.ones_like(share), 1)

    # Consistent, and accurate while w varies little under the draws; see `effective`.
    images = ops.shape(x)[0]
    *_, data = weighted(x, lambda values: ops.ones_like(values) / ops.cast(images, values.dtype))
    chain, share, model = weighted(draws, ops.softmax)
    gradient, bias, _ = chain.gradients([d - m for d, m in zip(data, model)])
    return ImportanceGradient(gradient, 1 / ops.sum(ops.square(share)), bias)
