"""Contrastive divergence for any units and maps, with an explicit gradient."""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.passes import Passes
from keras_capsule_poe.functions.slices import over_images
from keras_capsule_poe.functions.units import CAPSULES


class Divergence(NamedTuple):
    """Result of contrastive divergence."""

    gradient: Any
    reconstruction: Any
    z: Any
    z_model: Any
    hidden_bias: Any = None
    visible_bias: Any = None


def contrastive_divergence(
    maps,
    x,
    coefficients=None,
    hidden=CAPSULES,
    visible=CAPSULES,
    steps=1,
    seed=None,
    chains=None,
    hidden_bias=None,
    visible_bias=None,
):
    """Estimate the gradient of log P by contrastive divergence with k steps (CD-k).

        dW_ij = c_ij (s(z_j) x_i^T - s(z~_j) x~_i^T)        averaged over the batch

    The score of the hidden units is `s(z) = -dF/dz`, for capsules `2 z/(1 + |z|^2)`. The
    pre-activations are z_j = sum_i c_ij W_ij x_i. The chain ends in x~ and z~. A mean-field step
    of capsules is x~_i = squash(sum_j c_ij W_ij^T squash(z_j)).

    For fixed c, the first term is exactly the gradient of the mean of -F(x) in W. If c is routed
    from x it is not, because c then depends on W.

    Args:
        maps: `EinsumMaps`, `BlockMaps` or `DenseMaps`.
        x: Tensor (B, I, D), visible units of the data; (B, D) for `DenseMaps`.
        coefficients: Tensor (B, I, J) or (I, J), the same in every step. Or a `Router` of the
            same maps, which routes the start of each chain. Or a `LatentRouter`, which updates
            the coefficients in every step. None for `DenseMaps`.
        hidden, visible: Units of the two sides, such as `CapsuleUnits`.
        steps: int, k, Gibbs steps of the chain.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`, to sample all units.
            None: mean field, without sampling.
        chains: Tensor (N, I, D), persistent chains: the `reconstruction` of the last call. N must
            be B if `coefficients` is a tensor (B, I, J). None: the chains start from the data.
        hidden_bias: Tensor (J, E), added to the hidden pre-activations; or None. It must be None
            if a `Router` has one.
        visible_bias: Tensor (I, D), added to the visible pre-activations; or None.

    Returns:
        `Divergence` with `gradient` (shape of the kernel, an ascent direction), `reconstruction`
        x~ (N, I, D), `z` (B, J, E), `z_model` z~ (N, J, E), and the ascent directions
        `hidden_bias` and `visible_bias`, or None.

    Raises:
        ValueError: If `steps` is not positive, `coefficients` is missing or does not fit the maps
            or the chains, there are two hidden biases, or the units cannot be sampled.

    Example:

    >>> from keras_capsule_poe.functions import BinaryUnits, DenseMaps
    >>> x = np.array([[0.0, 1.0, 1.0, 0.0]], "float32")
    >>> step = contrastive_divergence(DenseMaps(ops.ones((3, 4))), x, hidden=BinaryUnits(),
    ...                               visible=BinaryUnits(), steps=2, seed=0)
    >>> step.gradient.shape, step.reconstruction.shape
    (TensorShape([3, 4]), TensorShape([1, 4]))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1 and Equation 18
    - [Hinton, 2002](https://doi.org/10.1162/089976602760128018), contrastive divergence
    - [Tieleman, 2008](https://doi.org/10.1145/1390156.1390290), persistent chains
    """
    steps = whole_number("steps", steps)
    chain = Passes(maps, coefficients, hidden, visible, hidden_bias, visible_bias)
    seeds = chain.seeds(seed, steps)
    x = chain.cast(x)
    images = ops.cast(ops.shape(x)[0], x.dtype)

    def walk(x, c, z, image):
        for two in seeds:
            x, c, z = chain.step(c, z, two, image)
        return x, c, z

    if chains is None:

        def step(*arrays):
            x, c, z, image = chain.start(*arrays)
            x_model, c_model, z_model = walk(x, c, z, image)
            results = chain.unlay(x_model, z, z_model)
            data = chain.statistics(c, results[1], x, image, images)
            model = chain.statistics(c_model, results[2], x_model, image, images)
            return results, _differences(data, model)

        (x_model, z, z_model), sums = chain.over(step, 2, x)
        return _divergence(chain.gradients(sums), x_model, z, z_model)

    chains = chain.cast(chains)
    chain.check_chains(chains, x)
    number = ops.cast(ops.shape(chains)[0], x.dtype)

    def data_step(*arrays):
        x, c, z, image = chain.start(*arrays)
        results = chain.unlay(x, z)
        return results, chain.statistics(c, results[1], x, image, images)

    def model_step(*arrays):
        x, c, z, image = chain.start(*arrays)
        x, c, z = walk(x, c, z, image)
        results = chain.unlay(x, z)
        return results, chain.statistics(c, results[1], x, image, number)

    (_, z), data = chain.over(data_step, 1, x)
    (x_model, z_model), model = chain.over(model_step, 1, chains, of_batch=False)
    return _divergence(chain.gradients(_differences(data, model)), x_model, z, z_model)


def decoder_rule(
    maps, x, z, coefficients=None, units=CAPSULES, visible=CAPSULES, conditional=False
):
    """Estimate the gradient of decoder maps U by one step of contrastive divergence.

        z~_i  = b_i + sum_j e_ji U_ji x_j
        x~_j  = squash(sum_i e_ji U_ji^T z~_i)
        dU_ji = e_ji (s(z_i) x_j^T - s(z~_i) x~_j^T)        averaged over the batch
        db_i  = s(z_i) - s(z~_i)

    The score is `s(z) = -dF/dz`, for capsules `2 z/(1 + |z|^2)`.

    Args:
        maps: Maps from the J experts to the I primary capsules.
        x: Tensor (B, J, E), experts of the data.
        z: Tensor (B, I, D), pre-activations of the primary capsules of the data.
        coefficients: Tensor (B, J, I), e_ji; or a `Router` of the same maps, whose `hidden_bias`
            is b (I, D); or None for `DenseMaps`.
        units, visible: Units of the primary capsules and of the experts.
        conditional: bool, whether the second term uses the experts of the data, x~_j = x_j. The
            rule then models the primary capsules given the experts.

    Returns:
        `Divergence` with `gradient` (J, I, D, E), `reconstruction` x~ (B, J, E), `z`,
        `z_model` z~ (B, I, D), and `hidden_bias` (I, D) or None.

    Raises:
        ValueError: If `coefficients` is missing.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> x, z, e = ops.ones((2, 5, 3)), ops.ones((2, 6, 4)), ops.ones((2, 5, 6))
    >>> decoder_rule(EinsumMaps(ops.ones((5, 6, 4, 3))), x, z, e).gradient.shape
    TensorShape([5, 6, 4, 3])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), training of the decoder
    - [Mnih et al., 2011](https://arxiv.org/abs/1202.3748), the conditional form
    """
    chain = Passes(maps, coefficients, units, visible)
    x, z = chain.cast(x), chain.cast(z)
    images = ops.cast(ops.shape(x)[0], x.dtype)

    def step(x, z, *more):
        x, c, z_model, image = chain.start(x, *more)
        if conditional:
            results = chain.unlay(x, z_model)
            # Both terms have the same inputs, so one correlation gives their difference.
            pull = units.pull(z) - units.pull(results[1])
            return results, chain.sums(c, pull, x, image, images)
        x_model = visible.mean(maps.down(c, z_model), axis=maps.input_axis)
        results = chain.unlay(x_model, z_model)
        data = chain.statistics(c, z, x, image, images)
        model = chain.statistics(c, results[1], x_model, image, images)
        return results, _differences(data, model)

    (x_model, z_model), sums = chain.over(step, 1, x, z)
    return _divergence(chain.gradients(sums), x_model, z, z_model)


def chain_step(
    maps,
    x,
    coefficients=None,
    hidden=CAPSULES,
    visible=CAPSULES,
    seed=None,
    hidden_bias=None,
    visible_bias=None,
):
    """Return the visible units after one Gibbs step, up and down.

    Args:
        maps, x, coefficients, hidden, visible, hidden_bias, visible_bias: See
            `contrastive_divergence`.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`, to sample all units.
            None: mean field.

    Returns:
        Tensor of the shape of `x`.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> x, c = ops.ones((2, 6, 4)), ops.ones((2, 6, 5))
    >>> chain_step(EinsumMaps(ops.ones((6, 5, 3, 4))), x, c).shape
    TensorShape([2, 6, 4])
    """
    chain = Passes(maps, coefficients, hidden, visible, hidden_bias, visible_bias)
    (seeds,) = chain.seeds(seed, 1)

    def step(*arrays):
        _, c, z, image = chain.start(*arrays)
        return [maps.unlay_inputs(chain.down(c, z, seeds, image))], []

    return over_images(
        step, chain.arrays(chain.cast(x)), maps.images_at_once(), [maps.input_shape], []
    )[0][0]


def _differences(data, model):
    return [d - m for d, m in zip(data, model)]


def _divergence(gradients, x_model, z, z_model):
    gradient, *biases = gradients
    return Divergence(gradient, x_model, z, z_model, *biases)
