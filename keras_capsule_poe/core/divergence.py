"""Contrastive divergence: the hand-derived gradient of products of experts and of RBMs.

Maps W and coupling coefficients c connect the visible units x (capsules i, or neurons) to the
hidden units (expert capsules j, or neurons). With c as a constant, the free energy F is

    -F(x) = sum_j A(z_j) + sum_i b_i . x_i        z_j = a_j + sum_i c_ij W_ij x_i

For capsules A(z) = log(1 + |z|^2), for binary neurons the sum of log(1 + e^z). With the score
s = dA/dz,

    d(-F)/dW_ij = c_ij s(z_j) x_i^T        d(-F)/da_j = s(z_j)        d(-F)/db_i = x_i

The gradient of log P = -F - log Z is the mean of these over the data, less their mean under P.
Contrastive divergence (CD-k) takes the end of a chain of k Gibbs steps in place of P, so the second
term is biased. All results are ascent directions: `ContrastiveModel.apply_ascent` gives their
negatives to the optimizer.

For capsules, `contrastive_divergence` is Algorithm 1 of Hauser (2019): a test compares it with that
algorithm in plain einsum. It also takes other units, maps and routing, and works on slices of a
batch and on several devices.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe._types import Seed, Tensor
from keras_capsule_poe.core.maps import DenseMaps
from keras_capsule_poe.core.numerics import StatelessSeed, at_least_float32, split, whole_number
from keras_capsule_poe.core.routing import LatentRouter, Router
from keras_capsule_poe.core.sharding import current_rows, over_images
from keras_capsule_poe.core.units import CAPSULES


class Divergence(NamedTuple):
    """Result of contrastive divergence; give the negative of an ascent to a Keras optimizer."""

    gradient: Any  # of the shape of the kernel, ascent
    reconstruction: Any  # x~, visible units at the end of the chain
    z: Any  # hidden pre-activations of the data
    z_model: Any  # z~, of the end of the chain
    hidden_bias: Any = None  # of the shape of the hidden bias, ascent
    visible_bias: Any = None  # of the shape of the visible bias, ascent


def contrastive_divergence(
    maps: Any,
    x: Tensor,
    coefficients: Tensor | None = None,
    routing: Any = None,
    hidden: Any = CAPSULES,
    visible: Any = CAPSULES,
    cd_steps: int = 1,
    seed: Seed | None = None,
    chains: Tensor | None = None,
    hidden_bias: Tensor | None = None,
    visible_bias: Tensor | None = None,
) -> Divergence:
    """Estimate the gradient of log P by contrastive divergence with k steps (CD-k).

        dW_ij = c_ij (s(z_j) x_i^T - s(z~_j) x~_i^T)        averaged over the batch

    The score of the hidden units is `s(z) = -dF/dz`, for capsules `2 z/(1 + |z|^2)`. The
    pre-activations are z_j = sum_i c_ij W_ij x_i. The chain ends in x~ and z~. A mean-field step
    of capsules is x~_i = squash(sum_j c_ij W_ij^T squash(z_j)).

    For fixed c, the first term is exactly the gradient of the mean of -F(x) in W. If c is routed
    from x it is not, because c then depends on W: c is treated as a constant. The second term is
    the biased estimate of CD-k. N below is B without `chains`.

    Args:
        maps: `EinsumMaps`, `BlockMaps` or `DenseMaps`.
        x: Tensor (B, I, D), visible units of the data; (B, D) for `DenseMaps`.
        coefficients: Tensor (B, I, J) or (I, J), coupling coefficients for all Gibbs steps. None
            for `DenseMaps`, and if `routing` is given.
        routing: A `Router` of the same maps, which routes the start of each chain; or a
            `LatentRouter`, which updates the coefficients in every step; or None.
        hidden, visible: Units of the two sides, such as `CapsuleUnits`.
        cd_steps: int, k of CD-k, the Gibbs steps of the chain.
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
        ValueError: If `cd_steps` is not positive, `coefficients` is missing or does not fit the
            maps or the chains, there are two hidden biases, or the units cannot be sampled.

    Example:

    >>> from keras_capsule_poe.functions import BinaryUnits, DenseMaps
    >>> x = np.array([[0.0, 1.0, 1.0, 0.0]], "float32")
    >>> step = contrastive_divergence(DenseMaps(ops.ones((3, 4))), x, hidden=BinaryUnits(),
    ...                               visible=BinaryUnits(), cd_steps=2, seed=0)
    >>> step.gradient.shape, step.reconstruction.shape
    (TensorShape([3, 4]), TensorShape([1, 4]))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1 and Equation 18
    - [Hinton, 2002](https://doi.org/10.1162/089976602760128018), contrastive divergence
    - [Tieleman, 2008](https://doi.org/10.1145/1390156.1390290), persistent chains
    """
    cd_steps = whole_number("cd_steps", cd_steps)
    chain = GibbsChain(maps, coefficients, routing, hidden, visible, hidden_bias, visible_bias)
    seeds = chain.seeds(seed, cd_steps)
    x = chain.cast(x)
    images = ops.cast(ops.shape(x)[0], x.dtype)

    def walk(c, z, rows):
        for step_seeds in seeds:
            x, c, z = chain.step(c, z, step_seeds, rows)
        return x, c, z

    if chains is None:
        shard = current_rows(ops.shape(x)[0])

        def of_slice(x, image, c):
            x, c, z = chain.start(x, c)
            x_model, c_model, z_model = walk(c, z, Rows(image, *shard))
            results = chain.unlay(x_model, z, z_model)
            data = chain.statistics(c, results[1], x, image, images)
            model = chain.statistics(c_model, results[2], x_model, image, images)
            return results, _differences(data, model)

        (x_model, z, z_model), sums = over_images(of_slice, chain.arrays(x), *chain.sizes(2))
        return _divergence(chain.gradients(sums), x_model, z, z_model)

    chains = chain.cast(chains)
    chain.check_chains(chains, x)
    chain_count = ops.shape(chains)[0]

    def of_data(x, image, c):
        x, c, z = chain.start(x, c)
        results = chain.unlay(x, z)
        return results, chain.statistics(c, results[1], x, image, images)

    def of_chains(x, image, c):
        x, c, z = chain.start(x, c)
        # Persistent chains belong to no image, so they are not sharded.
        x, c, z = walk(c, z, Rows(image, 0, chain_count))
        results = chain.unlay(x, z)
        return results, chain.statistics(c, results[1], x, image, ops.cast(chain_count, x.dtype))

    (_, z), data = over_images(of_data, chain.arrays(x), *chain.sizes(1))
    (x_model, z_model), model = over_images(of_chains, chain.arrays(chains), *chain.sizes(1))
    return _divergence(chain.gradients(_differences(data, model)), x_model, z, z_model)


def decoder_rule(
    maps: Any,
    x: Tensor,
    z: Tensor,
    coefficients: Tensor | None = None,
    routing: Router | None = None,
    units: Any = CAPSULES,
    visible: Any = CAPSULES,
    conditional: bool = False,
) -> Divergence:
    """Estimate the gradient of decoder maps U by one step of contrastive divergence.

        z~_i  = a_i + sum_j e_ji U_ji x_j
        x~_j  = squash(sum_i e_ji U_ji^T z~_i)
        dU_ji = e_ji (s(z_i) x_j^T - s(z~_i) x~_j^T)        averaged over the batch
        da_i  = s(z_i) - s(z~_i)

    The score is `s(z) = -dF/dz`, for capsules `2 z/(1 + |z|^2)`.

    Args:
        maps: Maps from the J experts to the I primary capsules.
        x: Tensor (B, J, E), experts of the data.
        z: Tensor (B, I, D), pre-activations of the primary capsules of the data.
        coefficients: Tensor (B, J, I), e_ji. None for `DenseMaps`, and if `routing` is given.
        routing: A `Router` of the same maps, whose `hidden_bias` is a (I, D); or None.
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
    chain = GibbsChain(maps, coefficients, routing, units, visible)
    x, z = chain.cast(x), chain.cast(z)
    images = ops.cast(ops.shape(x)[0], x.dtype)

    def of_slice(x, image, c, z):
        x, c, z_model = chain.start(x, c)
        if conditional:
            results = chain.unlay(x, z_model)
            # Both terms have the same inputs, so one correlation gives their difference.
            score = units.score(z) - units.score(results[1])
            return results, chain.sums(c, score, x, image, images)
        x_model = visible.mean(maps.down(c, z_model), axis=maps.input_axis)
        results = chain.unlay(x_model, z_model)
        data = chain.statistics(c, z, x, image, images)
        model = chain.statistics(c, results[1], x_model, image, images)
        return results, _differences(data, model)

    (x_model, z_model), sums = over_images(of_slice, [*chain.arrays(x), z], *chain.sizes(1))
    return _divergence(chain.gradients(sums), x_model, z, z_model)


def chain_step(
    maps: Any,
    x: Tensor,
    coefficients: Tensor | None = None,
    routing: Any = None,
    hidden: Any = CAPSULES,
    visible: Any = CAPSULES,
    seed: Seed | None = None,
    hidden_bias: Tensor | None = None,
    visible_bias: Tensor | None = None,
) -> Tensor:
    """Return the visible units after one Gibbs step, up and down.

    Args:
        maps, x, coefficients, routing, hidden, visible, hidden_bias, visible_bias: See
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
    chain = GibbsChain(maps, coefficients, routing, hidden, visible, hidden_bias, visible_bias)
    (seeds,) = chain.seeds(seed, 1)
    x = chain.cast(x)
    shard = current_rows(ops.shape(x)[0])

    def of_slice(x, image, c):
        x, c, z = chain.start(x, c)
        x, _ = chain.states(c, z, seeds, Rows(image, *shard))
        return [maps.unlay_inputs(x)], []

    return over_images(of_slice, chain.arrays(x), maps.images_at_once(), [maps.input_shape], [])[0][
        0
    ]


def _differences(data, model):
    return [d - m for d, m in zip(data, model)]


def _divergence(gradients, x_model, z, z_model):
    gradient, *biases = gradients
    return Divergence(gradient, x_model, z, z_model, *biases)


class Rows(NamedTuple):
    """Rows of a batch by their index, so that their random numbers do not depend on slices."""

    index: Any  # int32 (B,), from one; rows of padding have zero; None: all rows
    offset: Any  # of the shard in the whole batch
    total: Any  # rows of the whole batch; their leading sizes if `index` is None


class GibbsChain:
    """Gibbs steps between visible and hidden units, in the layout of the maps. Stateless."""

    def __init__(
        self, maps, coefficients, routing, hidden, visible, hidden_bias=None, visible_bias=None
    ):
        self._maps, self._hidden, self._visible = maps, hidden, visible
        self._laid = hidden.laid(maps.lay_outputs), visible.laid(maps.lay_inputs)
        self._coefficients, self._router = coefficients, routing
        self._is_latent = isinstance(routing, LatentRouter)
        _check_routing(maps, coefficients, routing)
        # A router with a hidden bias has already added it to the pre-activations.
        self._is_routed_bias = getattr(routing, "hidden_bias", None) is not None
        if self._is_routed_bias:
            if hidden_bias is not None:
                raise ValueError(
                    "`hidden_bias` must be None beside a Router that has one. Received: both"
                )
            hidden_bias = routing.hidden_bias
        self._biases = [
            None if bias is None else self.cast(bias) for bias in (hidden_bias, visible_bias)
        ]

    def cast(self, x):
        """Return `x` as a tensor of the maps' dtype."""
        return ops.cast(at_least_float32(x), self._maps.kernel.dtype)

    def seeds(self, seed, steps):
        """Return per step None, or seeds for hidden units, visible units and latent parents."""
        if seed is None:
            return [None] * steps
        for units in (self._hidden, self._visible):
            if not hasattr(units, "sample"):
                raise ValueError(
                    f"No p(x | z) is known of {type(units).__name__}, so that nothing can be "
                    f"drawn: use seed=None, the mean field. Received: seed={seed!r}"
                )
        each = 3 if self._is_latent else 2
        pairs = split(seed, each * steps)
        # A list, because a graph cannot iterate over a tensor.
        return [[pairs[each * step + k] for k in range(each)] for step in range(steps)]

    def check_chains(self, chains, x):
        """Raise ValueError if per-image coefficients do not fit the number of chains."""
        c, sizes = self._coefficients, {chains.shape[0], x.shape[0]}
        # A size may be unknown in a graph.
        if c is not None and len(c.shape) == 3 and len(sizes - {None}) > 1:
            raise ValueError(
                "`chains` must be as many as there are images where coefficients are given: each "
                f"chain keeps those of an image. Received: {chains.shape[0]} chains, "
                f"{x.shape[0]} images"
            )

    def all_rows(self, x):
        """Return the `Rows` of all images of `x` (..., I, D), used at once."""
        return Rows(None, 0, ops.shape(x)[: len(x.shape) - len(self._maps.input_shape)])

    def arrays(self, x):
        """Return what `over_images` slices: x, image numbers from one, coefficients or None."""
        images, c = ops.shape(x)[0], self._coefficients
        if c is not None:
            c = self.cast(c)
            c = ops.broadcast_to(c[None], (images, *c.shape)) if len(c.shape) == 2 else c
        # Padding of a slice has number zero.
        return [x, ops.arange(images, dtype="int32") + 1, c]

    def sizes(self, outputs):
        """Return for `over_images`: images per slice, shapes of the results and of the sums."""
        maps = self._maps
        shapes = [maps.input_shape] + outputs * [maps.output_shape]
        sums = [*maps.map_shapes, *(bias.shape for bias in self._biases if bias is not None)]
        return maps.images_at_once(), shapes, sums

    def start(self, x, c):
        """Return inputs, coefficients and hidden pre-activations, in the layout of the maps."""
        x = self._maps.lay_inputs(x)
        if self._router:
            *_, (_, c, z) = self._router.iterations(x)
            return x, c, z if self._is_routed_bias else self._with_bias(z, 0)
        c = None if c is None else self._maps.lay_pairs(c)
        return x, c, self._with_bias(self._maps.up(c, x), 0)

    def step(self, c, z, seeds, rows):
        """Return visible units, coefficients and hidden pre-activations after one Gibbs step."""
        x, y = self.states(c, z, seeds, rows)
        if self._is_latent:
            c = self._parents(x, y, seeds, rows)
        return x, c, self._with_bias(self._maps.up(c, x), 0)

    def joint_step(self, c, x, seeds, rows):
        """Return visible units, the hidden units that gave them, and parents given both."""
        x, y = self.states(c, self._with_bias(self._maps.up(c, x), 0), seeds, rows)
        return x, y, self._parents(x, y, seeds, rows)

    def _parents(self, x, y, seeds, rows):
        if seeds is None:
            return self._router.given(x, y)
        pairs = self._maps.inputs, self._maps.outputs
        noise = self._own(self._router.noise, pairs, x.dtype, seeds[2], rows)
        return self._router.given(x, y, noise)

    def states(self, c, z, seeds, rows):
        """Return visible and hidden units, given the hidden pre-activations."""
        maps, (first, second) = self._maps, (None, None) if seeds is None else (seeds[0], seeds[1])
        hidden, visible = self._laid
        if seeds is None:
            y = hidden.mean(z, axis=maps.output_axis)
        else:
            noise = self._own(hidden.noise, maps.output_shape, z.dtype, first, rows)
            y = hidden.drawn(z, maps.lay_outputs(noise))
        z = self._with_bias(maps.down(c, y), 1)
        if seeds is None:
            return visible.mean(z, axis=maps.input_axis), y
        noise = self._own(visible.noise, maps.input_shape, z.dtype, second, rows)
        return visible.drawn(z, maps.lay_inputs(noise)), y

    def _own(self, draw, shape, dtype, seed, rows):
        seed = StatelessSeed(seed[0], seed[1] + 1)
        if rows.index is None:
            return draw((*rows.total, *shape), dtype, seed)
        # Draw for all images and select: the noise depends on neither slices nor shards.
        noise = draw((rows.total, *shape), dtype, seed)
        return ops.take(noise, rows.offset + ops.maximum(rows.index - 1, 0), axis=0)

    def _with_bias(self, z, side):
        bias = self._biases[side]
        if bias is None:
            return z
        return z + (self._maps.lay_inputs if side else self._maps.lay_outputs)(bias[None])

    def statistics(self, c, z, x, image, images):
        """Return the sums over images for the gradients, given z (B, J, E)."""
        return self.sums(c, self._hidden.score(z), x, image, images)

    def sums(self, c, score, x, image, images):
        """Return the sums over images for the gradients, given scores (B, J, E)."""
        score = self.mean(score, image, images)
        sums = list(self._maps.correlation(c, self._maps.lay_outputs(score), x))
        if self._biases[0] is not None:
            sums.append(ops.sum(score, axis=0))
        if self._biases[1] is not None:
            x = self.mean(self._maps.unlay_inputs(x), image, images)
            sums.append(ops.sum(x, axis=0))
        return sums

    def mean(self, rows, image, images):
        """Divide rows by the number of images; rows of padding become zero."""
        rows = (1 / images) * rows
        is_image = ops.reshape(image > 0, (-1,) + (1,) * (len(rows.shape) - 1))
        return ops.where(is_image, rows, ops.zeros_like(rows))

    def unlay(self, x, *z):
        """Return inputs and outputs in their original layout."""
        return [self._maps.unlay_inputs(x), *(self._maps.unlay_outputs(each) for each in z)]

    def gradients(self, sums):
        """Return the gradients of the kernel and the two biases from sums over images."""
        blocks = len(self._maps.map_shapes)
        kernel, biases = self._maps.unlay_maps(sums[:blocks]), iter(sums[blocks:])
        biases = [None if bias is None else next(biases) for bias in self._biases]
        return kernel, *biases


def _check_routing(maps, coefficients, routing):
    """Raise ValueError unless exactly one of coefficients and routing fits the maps."""
    if hasattr(coefficients, "maps"):
        raise ValueError(
            "`coefficients` must be a tensor: give a router as `routing`. "
            f"Received: coefficients={coefficients!r}"
        )
    if coefficients is not None and routing is not None:
        raise ValueError(
            "`coefficients` must be None if `routing` is given. Received: both a tensor and "
            f"a {type(routing).__name__}"
        )
    if coefficients is None and routing is None and not isinstance(maps, DenseMaps):
        raise ValueError(
            "`coefficients` or `routing` must be given: only DenseMaps need neither. "
            "Received: coefficients=None, routing=None"
        )
    if routing is not None and routing.maps.form is not maps.form:
        raise ValueError(
            "`routing` must be a Router over maps of the same kind. Received: a Router "
            f"over {routing.maps.form.__name__}, and {maps.form.__name__}"
        )
