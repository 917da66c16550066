"""Likelihood gradients of products of experts by importance weights."""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.core.divergence import GibbsChain
from keras_capsule_poe.core.routing import Router
from keras_capsule_poe.core.units import CAPSULES, free_energy


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
