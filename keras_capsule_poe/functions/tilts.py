"""How far experts tilt a base measure: their log weight of x, and the likelihood's gradient."""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.functions.maps import DenseMaps
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.passes import Passes
from keras_capsule_poe.functions.routing import Router
from keras_capsule_poe.functions.units import CAPSULES, free_energy


def expert_log_weight(kernel, coefficients, units=CAPSULES, hidden_bias=None):
    """The function x -> log w(x) = -F(x), sum_j log(1 + |z_j|^2) for capsules.

    P(x) = P_0(x) w(x)/Z is one density of x where the coefficients are the same for all x, and
    where they are routed from x. It is not where each image keeps its own.

    Args:
        kernel: Tensor (I, J, E, D), the maps W_ij.
        coefficients: Tensor (I, J), the same for every x; or a `Router` of the same maps, whose
            `hidden_bias` counts.
        units: The experts' units, see `functions.units`.
        hidden_bias: Tensor (J, E), added to what the experts receive; or None.

    Returns:
        Function of x (N, I, D) to log w, (N,), nats.

    Raises:
        ValueError: If the coefficients are of another shape, or there are two biases.

    Examples:

    >>> log_weight = expert_log_weight(ops.ones((6, 5, 3, 4)), ops.ones((6, 5)))
    >>> log_weight(ops.zeros((2, 6, 4))).shape
    TensorShape([2])
    """
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
    # With the same coefficients for every x all of the maps are one matrix.
    weighted = ops.transpose(coefficients[:, :, None, None] * kernel, (1, 2, 0, 3))
    maps = DenseMaps(ops.reshape(weighted, (experts * out_dim, inputs * in_dim)))
    bias = 0.0 if hidden_bias is None else ops.cast(hidden_bias, kernel.dtype)

    def log_weight(x):
        z = maps.up(None, ops.reshape(x, (-1, inputs * in_dim)))
        return -free_energy(ops.reshape(z, (-1, experts, out_dim)) + bias, units)

    return log_weight


class ImportanceGradient(NamedTuple):
    """What `importance_gradient` gives.

    `gradient`: ascent direction on the mean log P of the data, of the kernel's shape.
    `hidden_bias`: that of the experts' bias (J, E), None where they have none.
    `effective`: how many equally weighted draws the draws of the base are worth.
    """

    gradient: Any
    effective: Any
    hidden_bias: Any = None


def importance_gradient(maps, x, draws, coefficients, units=CAPSULES, hidden_bias=None):
    """The likelihood's gradient, its model term an importance average over draws of the base.

    dW_ij = <c_ij pull(z_j) x_i^T> of the data less the same of P, where P's mean is taken over
    draws of P_0 with weights w(x)/sum w. No chain takes part. It is consistent, and near exact
    where w varies little under the base, which `effective` says.

    Args:
        maps: `EinsumMaps` or `BlockMaps`.
        x: Tensor (B, I, D), visible capsules of the data.
        draws: Tensor (N, I, D), independent draws of the base measure.
        coefficients: Tensor (I, J), the same for every x. With a `Router` of the same maps the
            derivative of the coefficients is missing, as in `contrastive_divergence`.
        units: The experts' units.
        hidden_bias: Tensor (J, E), b; or None, as beside a Router, whose own counts.

    Returns:
        `ImportanceGradient`.

    Examples:

    >>> from keras_capsule_poe.functions import EinsumMaps, UniformBall
    >>> maps, draws = EinsumMaps(ops.ones((6, 5, 3, 4))), UniformBall(6, 4).draw(9, seed=0)
    >>> importance_gradient(maps, draws[:2], draws, ops.ones((6, 5))).gradient.shape
    TensorShape([6, 5, 3, 4])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Equation 18
    """

    def pulled(x, weights):
        """The weighted sum over x of c_ij pull(z_j) x_i^T, given the weights of log w."""
        rows = coefficients
        if not isinstance(coefficients, Router):
            shape = (ops.shape(x)[0], *coefficients.shape)
            rows = ops.broadcast_to(ops.cast(coefficients, maps.kernel.dtype), shape)
        chain = Passes(maps, rows, units, units, hidden_bias)

        def step(*arrays):
            inputs, c, z, _ = chain.start(*arrays)
            (z,) = chain.unlay(inputs, z)[1:]
            share = weights(-free_energy(z, units))
            pull = share[:, None, None] * units.pull(z)
            # The weights have the mean in them already.
            return chain, share, chain.sums(c, pull, inputs, ops.ones_like(share), 1)

        return step(*chain.arrays(chain.cast(x)))

    images = ops.shape(x)[0]
    *_, data = pulled(x, lambda values: ops.ones_like(values) / ops.cast(images, values.dtype))
    chain, share, model = pulled(draws, ops.softmax)
    gradient, bias, _ = chain.gradients([d - m for d, m in zip(data, model)])
    return ImportanceGradient(gradient, 1 / ops.sum(ops.square(share)), bias)
