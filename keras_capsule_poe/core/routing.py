"""Routing over any maps: dynamic routing, and latent parents of the visible capsules."""

import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

from keras import ops, tree

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import (
    at_least_float32,
    direction,
    index_noise,
    index_of,
    one_of,
    real_number,
    whole_number,
)
from keras_capsule_poe.core.sharding import over_images
from keras_capsule_poe.core.units import CAPSULES, BinaryUnits
from keras_capsule_poe.former_names import with_former_names

Routing = namedtuple("Routing", ["coefficients", "z"])
Routing.__doc__ = "Routing coefficients c (B, I, J) and the collectives z (B, J, E) that they give."

Numbers = namedtuple(
    "Numbers", ["agreement_scale", "activation_prior_weight", "bias", "coefficient_sum"]
)

SOFTMAX_OVER = ("inputs", "outputs")
AGREEMENTS = ("cosine", "dot", "projection")
LOGITS = ("accumulated", "replaced")


@with_former_names
@dataclass(frozen=True, kw_only=True)
class RoutingOptions:
    """Options of dynamic routing.

    `agreement_scale`, `activation_prior_weight` and `coefficient_sum` may be scalar tensors.

    Args:
        routing_iterations: int, r of Sabour et al. The first iteration has the initial coupling
            coefficients, so r iterations update them r - 1 times.
        agreement_scale: float above zero, factor on the agreement. A value near zero ignores the
            agreement; a large value gives winner-take-all.
        softmax_over: `"inputs"` for a softmax over the inputs: each output is a weighted mean of
            its votes. `"outputs"` for a softmax over the outputs: each input splits its
            coefficients.
        agreement: `"cosine"` as in Hauser (2019), `"dot"` for the inner product with the squashed
            output (Sabour et al.), or `"projection"` for that with its direction.
        activation_prior_weight: float, weight of an output's log-odds log |z_j|^2 in its logits.
            It has no effect for `softmax_over="inputs"`, because that softmax cancels it.
        coefficient_sum: float, sum of the coefficients, or `"mean"` for a mean coefficient of one.
            A factor on it has the same effect as the same factor on the maps.
        leaky: bool, whether to add a zero logit to the softmax over the outputs. An input then
            does not have to belong to any output.
        logits: `"accumulated"` to sum the agreements over the iterations, or `"replaced"` to use
            only the last. With projections, the latter is soft k-means.

    Raises:
        ValueError: If an option is invalid.

    Example:

    >>> RoutingOptions(routing_iterations=2, coefficient_sum="mean").total(inputs=6, outputs=5)
    6.0

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1
    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), the activation prior
    - [Su, 2018](https://github.com/bojone/Capsule), replaced logits
    """

    routing_iterations: int = 4
    agreement_scale: float = 1.0
    softmax_over: str = "inputs"
    agreement: str = "cosine"
    activation_prior_weight: float = 0.0
    coefficient_sum: float | str = 1.0
    leaky: bool = False
    logits: str = "accumulated"

    def __post_init__(self):
        def number(name, **rule):
            value = getattr(self, name)
            return value if ops.is_tensor(value) else real_number(name, value, **rule)

        settled = {
            "routing_iterations": whole_number("routing_iterations", self.routing_iterations),
            "softmax_over": one_of("softmax_over", self.softmax_over, SOFTMAX_OVER),
            "agreement": one_of("agreement", self.agreement, AGREEMENTS),
            "agreement_scale": number("agreement_scale", above=0),
            "activation_prior_weight": number("activation_prior_weight"),
            "logits": one_of("logits", self.logits, LOGITS),
        }
        if not isinstance(self.leaky, bool):
            raise ValueError(f"`leaky` must be true or false. Received: leaky={self.leaky!r}")
        if self.leaky and self.softmax_over != "outputs":
            raise ValueError(
                "`leaky` goes with softmax_over='outputs': what leaks is a share of an input. "
                f"Received: softmax_over={self.softmax_over!r}"
            )
        if not (isinstance(self.coefficient_sum, str) and self.coefficient_sum == "mean"):
            settled["coefficient_sum"] = number("coefficient_sum", above=0, besides=", or 'mean'")
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    @property
    def updates(self):
        """Number of updates of the coupling coefficients, one less than the iterations."""
        return self.routing_iterations - 1

    def total(self, inputs, outputs):
        """Return the sum of the coefficients for I inputs and J outputs, with `"mean"` resolved."""
        if isinstance(self.coefficient_sum, str):
            number = inputs if self.softmax_over == "inputs" else outputs
            return ops.cast(number, "float32") if ops.is_tensor(number) else float(number)
        return self.coefficient_sum


class Router:
    """Dynamic routing with one set of maps and options.

    Let v_ij = W_ij x_i be the votes and g(z) the direction of z (its squash for dot agreement).
    With the initial coefficients c_0 and z_0, an update t = 1, 2, ... computes

        p_t    = p_{t-1} + T g(z_{t-1})                  or T g(z_{t-1}) with replaced logits
        c_t,ij = s softmax(agreement(v_ij, p_t,j) + prior log-odds(z_{t-1},j) + bias_j)
        z_t,j  = a_j + sum_i c_t,ij v_ij

    T is `agreement_scale`, s is `coefficient_sum` and prior is `activation_prior_weight`.
    The initial coefficients are the same for all inputs: uniform over the inputs, or the softmax
    of `bias` over the outputs.

    A subclass may replace the softmax (`compete`), or all `iterations`, which training uses, too.

    Args:
        maps: Maps such as `EinsumMaps`.
        options: `RoutingOptions`.
        bias: Tensor (J,), added to the logits of each output capsule; or None.
        numbers: `Numbers`, tensors that replace those of the options and the bias; or None.
        units: Units of the outputs, such as `CapsuleUnits`.
        hidden_bias: Tensor (J, E), a_j, added to the pre-activations; or None.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> router = Router(EinsumMaps(ops.ones((6, 5, 3, 4))), RoutingOptions(routing_iterations=2))
    >>> router.route(ops.ones((2, 6, 4))).z.shape
    TensorShape([2, 5, 3])
    """

    def __init__(
        self,
        maps: Any,
        options: RoutingOptions,
        bias: Tensor | None = None,
        numbers: Numbers | None = None,
        units: Any = CAPSULES,
        hidden_bias: Tensor | None = None,
    ) -> None:
        self.maps = maps
        self._units = units
        self._options = options
        if numbers is None:
            numbers = numbers_of(maps.kernel, options, bias, maps.inputs)
        self._numbers = numbers
        prior = options.activation_prior_weight
        no_prior = isinstance(prior, float) and prior == 0
        # A softmax over the inputs cancels an offset that all inputs share.
        self._is_offset = options.softmax_over == "outputs" and not (no_prior and bias is None)
        self._is_cosine = options.agreement == "cosine"
        self._is_replaced = options.logits == "replaced"
        self._updates = options.routing_iterations - 1
        # Without updates no vote is compared with anything.
        self._agreement = maps.Agreement(maps, options.agreement) if self._updates else None
        self._axis = maps.output_axis
        bias = self._numbers.bias
        if options.softmax_over == "inputs":
            share = ops.ones_like(bias) / ops.cast(maps.inputs, bias.dtype)
        else:
            largest = ops.max(bias)
            largest = ops.maximum(largest, 0) if options.leaky else largest
            share = ops.exp(bias - largest)
            leak = ops.exp(-largest) if options.leaky else 0
            share = share / (ops.sum(share) + leak)
        self._share = maps.lay_numbers(share)
        # The log-odds in the logits need all of z_j, so routing adds a_j in each iteration.
        self.hidden_bias = self._laid_bias = None
        if hidden_bias is not None:
            self.hidden_bias = ops.cast(at_least_float32(hidden_bias), maps.kernel.dtype)
            self._laid_bias = maps.lay_outputs(self.hidden_bias[None])

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        refuse_route(cls, "A router must say how it routes in `iterations` or `compete`")

    def route(self, x):
        """Route input capsules.

        Args:
            x: Tensor (B, I, D), input capsules.

        Returns:
            `Routing`: coupling coefficients (B, I, J) and pre-activations z (B, J, E).
        """
        c, *steps = self.all_images(ops.cast(at_least_float32(x), self.maps.kernel.dtype))
        return Routing(c, steps[-1])

    def all_images(self, x):
        """Return the list [c, z_0, ..., z_last], of shapes (B, I, J) and (B, J, E)."""
        maps = self.maps

        def of_slice(x):
            found = []
            for iteration in self.iterations(maps.lay_inputs(x)):
                # Not a list of all: it would hold all logits.
                _, c, z = iteration
                found.append(maps.unlay_outputs(z))
            return [maps.unlay_pairs(c), *found], []

        shapes = [(maps.inputs, maps.outputs)]
        shapes += [maps.output_shape] * self._options.routing_iterations
        return over_images(of_slice, [x], maps.images_at_once(), shapes, [])[0]

    def history(self, x):
        """Return the logits of each update and the coefficients of each iteration, (B, I, J)."""
        maps = self.maps

        def of_slice(x):
            logits, coefficients, _ = zip(*self.iterations(maps.lay_inputs(x)))
            return [maps.unlay_pairs(pairs) for pairs in (*logits[1:], *coefficients)], []

        x = ops.cast(at_least_float32(x), maps.kernel.dtype)
        shapes = [(maps.inputs, maps.outputs)] * (2 * self._updates + 1)
        found, _ = over_images(of_slice, [x], maps.images_at_once(), shapes, [])
        return found[: self._updates], found[self._updates :]

    def iterations(self, x):
        """Yield logits, c and z of each iteration, for inputs x; all in the layout of the maps."""
        maps, share = self.maps, self._numbers.coefficient_sum * self._share
        z = maps.equal_up(x) * ops.expand_dims(share, self._axis)
        z = z if self._laid_bias is None else z + self._laid_bias
        yield None, maps.equal_pairs(share, x), z
        measured, target = self._agreement.measure(x) if self._updates else None, 0.0
        for _ in range(self._updates):
            target, _ = self._moved(target, z)
            logits, c = self._coefficients(self._agreement.of(measured, target), z)
            z = maps.up(c, x)
            z = z if self._laid_bias is None else z + self._laid_bias
            yield logits, c, z

    def _moved(self, target, z):
        """Return p_t and the direction g(z_{t-1}), from p_{t-1} and z_{t-1}."""
        is_dot = self._options.agreement == "dot"
        towards = self._units.mean(z, self._axis) if is_dot else direction(z, self._axis)
        more = self._numbers.agreement_scale * towards
        return more if self._is_replaced else target + more, towards

    def _coefficients(self, logits, z):
        """Return logits and coefficients, from agreements and pre-activations."""
        numbers = self._numbers
        if self._is_offset:
            offset = numbers.activation_prior_weight * self._units.log_odds(z, self._axis)
            offset = offset + self.maps.lay_numbers(numbers.bias)
            logits = self.maps.add_to_outputs(logits, offset)
        if type(self).compete is Router.compete:
            return logits, self._softmax(logits)
        return logits, self.maps.lay_pairs(self.compete(self.maps.unlay_pairs(logits)))

    def compete(self, logits):
        """Return coefficients (B, I, J) of logits (B, I, J), here `coefficient_sum` softmax."""
        return self.maps.unlay_pairs(self._softmax(self.maps.lay_pairs(logits)))

    def _softmax(self, logits):
        options, total = self._options, self._numbers.coefficient_sum
        return self.maps.softmax(logits, options.softmax_over, total, options.leaky)


def refuse_route(cls, rule):
    """Raise `TypeError` if a class overrides `route`; `rule` says what it may override."""
    if "route" in vars(cls):
        raise TypeError(
            f"{rule}, which training uses, too. Received: {cls.__name__}, which overrides `route`"
        )


def numbers_of(kernel, options, bias, inputs):
    """Return the `Numbers` of options and a bias as tensors of the kernel's dtype."""
    outputs = kernel.shape[1]
    bias = ops.zeros((outputs,)) if bias is None else bias
    total = options.total(inputs, outputs)
    numbers = options.agreement_scale, options.activation_prior_weight, bias, total
    return Numbers(*[ops.convert_to_tensor(number, dtype=kernel.dtype) for number in numbers])


# Length of the inputs that initial maps are for, that of a squashed vector of length one.
INPUT_LENGTH = 0.5


def initial_stddev(inputs, dim, coefficient, selected, target=1.0):
    """Return the standard deviation of maps that give pre-activations of length about `target`.

    Sums of I votes of length v in random directions grow as sqrt(I). Routing increases them by the
    factor `1 + selected(v)`, because it selects votes that agree.
    """
    low, high = 0.0, target / (coefficient * inputs**0.5)
    for _ in range(50):
        vote = (low + high) / 2
        is_long = coefficient * vote * inputs**0.5 * (1 + selected(vote)) > target
        low, high = (low, vote) if is_long else (vote, high)
    return vote / (INPUT_LENGTH * dim**0.5)


def coupling_changes(router, x, each=False):
    """Return the mean change |b_t - b_(t-1)| of T updates, (T,) or with `each` (B, T)."""
    logits, _ = router.history(x)
    if not logits:
        raise ValueError(
            "`router` must have two iterations or more: the first one changes nothing. "
            "Received: routing_iterations=1"
        )
    before = [ops.zeros_like(logits[0]), *logits[:-1]]
    moved = [ops.mean(ops.abs(b - a), axis=(1, 2)) for a, b in zip(before, logits)]
    return ops.stack(moved, axis=1) if each else ops.stack([ops.mean(move) for move in moved])


@with_former_names
class LatentRouter:
    """Inference of the latent parents of visible capsules, by mean field or by sampling.

    The parent c_i of a visible capsule is one-hot over the J hidden capsules, uniform a priori:

        -E(v, h, c) = b.v + a.h + s sum_ij c_ij h_j^T W_ij v_i - base_energy(v)
        P(c_i = j | v, h) = softmax_j(s h_j^T W_ij v_i)

    Mean field in (h, c) is dynamic routing with dot agreement, a softmax over the outputs and
    replaced logits.

    Args:
        maps: Maps such as `EinsumMaps`.
        hidden: Units of the hidden capsules; None: `BinaryUnits`.
        hidden_bias: Tensor (J, E), a; None: zero.
        routing_iterations: int, counted as Sabour et al. count them: the first iteration has the
            initial probabilities, so r iterations update the parents r - 1 times.
        coefficient_sum: float, s, above zero.

    Raises:
        ValueError: If a number is out of range.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> router = LatentRouter(EinsumMaps(ops.ones((6, 5, 3, 4))))
    >>> c, z = router.route(ops.ones((2, 6, 4)))
    >>> c.shape, z.shape, round(float(ops.sum(c[0, 0])), 3)
    (TensorShape([2, 6, 5]), TensorShape([2, 5, 3]), 1.0)

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    def __init__(
        self,
        maps: Any,
        hidden: Any = None,
        hidden_bias: Tensor | None = None,
        *,
        routing_iterations: int = 4,
        coefficient_sum: float = 1.0,
    ) -> None:
        self.maps, self._hidden = maps, (hidden or BinaryUnits()).laid(maps.lay_outputs)
        self._bias = 0.0
        if hidden_bias is not None:
            self._bias = maps.lay_outputs(ops.cast(hidden_bias, maps.kernel.dtype)[None])
        self._iterations = whole_number("routing_iterations", routing_iterations)
        self.coefficient_sum = real_number("coefficient_sum", coefficient_sum, above=0)

    def route(self, x):
        """Infer the parents of inputs by mean field.

        Args:
            x: Tensor (B, I, D), states of the visible units.

        Returns:
            `Routing`: s times the probabilities of the parents (B, I, J), and the pre-activations
            z_j = sum_i c_ij W_ij x_i (B, J, E), without the hidden bias.
        """
        maps = self.maps
        x = ops.cast(at_least_float32(x), maps.kernel.dtype)
        *_, (_, c, z) = self.iterations(maps.lay_inputs(x))
        return Routing(maps.unlay_pairs(c), maps.unlay_outputs(z))

    def iterations(self, x):
        """Yield None, c and z of each iteration, see `Router.iterations`."""
        maps = self.maps
        share = maps.lay_numbers(ops.full((maps.outputs,), 1 / maps.outputs, x.dtype))
        share = self.coefficient_sum * share
        z = maps.equal_up(x) * ops.expand_dims(share, maps.output_axis)
        yield None, maps.equal_pairs(share, x), z
        for _ in range(self._iterations - 1):
            y = self._hidden.mean(z + self._bias, axis=maps.output_axis)
            c = self.given(x, y)
            z = maps.up(c, x)
            yield None, c, z

    def given(self, x, y, noise=None):
        """Return s times the parents given both layers: probabilities, or samples with `noise`."""
        maps = self.maps
        pairs = maps.agreement(y, x)
        scaled = tree.map_structure(lambda block: self.coefficient_sum * block, pairs)
        if noise is None:
            return maps.softmax(scaled, "outputs", self.coefficient_sum)
        logits = maps.unlay_pairs(scaled)
        drawn = ops.one_hot(index_of(logits, noise), maps.outputs, dtype=logits.dtype)
        return maps.lay_pairs(self.coefficient_sum * drawn)

    def noise(self, shape, dtype, seed):
        """Return the noise of a sample of parents, see `index_noise`."""
        return index_noise(shape, dtype, seed)


def routing_steps(router, units, x, places):
    """Return the routing of inputs x (B, I, D) in each of T iterations, a dict of tensors.

    `coefficients` (B, T, h, w, J) are means at each of the `places` (h, w), and `probabilities`
    (B, T, J) those of the outputs.
    """
    maps, coefficients, probabilities = router.maps, [], []
    for _, c, z in router.iterations(maps.lay_inputs(x)):
        coefficients.append(at_places(maps.unlay_pairs(c), places))
        probabilities.append(units.probability(maps.unlay_outputs(z)))
    return {
        "coefficients": ops.stack(coefficients, axis=1),
        "probabilities": ops.stack(probabilities, axis=1),
    }


def at_places(c, places):
    """Return coefficients (B, I, J), averaged over the inputs of a place, (B, h, w, J)."""
    height, width = places
    shape = (-1, height, width, c.shape[1] // (height * width), c.shape[2])
    return ops.mean(ops.reshape(c, shape), axis=3)


@with_former_names
def latent_free_energy(harmonium: Any, x: Tensor, coefficient_sum: float = 1.0) -> Tensor:
    """Return minus the ELBO, an upper bound on the free energy F(v) of the visible units.

    The bound sums out the hidden units and the parents. With probabilities c/s of the parents,
    ELBO = -F(v; c) + sum_i H(c_i/s) - I log J. Mean-field updates never increase the bound.

    Args:
        harmonium: `Harmonium` with coefficients (B, I, J), s times probabilities.
        x: Tensor (B, I, D), states of the visible units.
        coefficient_sum: float, s.

    Returns:
        Tensor (B,), in nats. It is exact if J is one.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps, Harmonium
    >>> c = ops.ones((2, 6, 5)) / 5
    >>> machine = Harmonium(EinsumMaps(ops.zeros((6, 5, 3, 4))), coefficients=c)
    >>> round(float(latent_free_energy(machine, ops.ones((2, 6, 4)))[0] / np.log(2)), 3)
    -15.0
    """
    p = ops.cast(harmonium.coefficients, harmonium.maps.kernel.dtype) / coefficient_sum
    log_p = ops.log(ops.where(p > 0, p, ops.ones_like(p)))
    divergence = ops.sum(p * (log_p + math.log(p.shape[-1])), axis=(1, 2))
    return harmonium.free_energy(x) + divergence
