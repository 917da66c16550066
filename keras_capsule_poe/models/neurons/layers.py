"""Product of expert neurons in capsules, with routed maps, and its exact mixture."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Identifier, Tensor
from keras_capsule_poe.core.enumeration import (
    MOST_NEURONS,
    BoltzmannMixture,
    MixtureGradient,
    state_log_weights,
)
from keras_capsule_poe.core.harmonium import (
    Harmonium,
    flattened,
    gibbs_chain,
    latent_chain,
    one_capsule,
)
from keras_capsule_poe.core.numerics import draw_index, one_of, streams
from keras_capsule_poe.core.routing import LatentRouter, Routing, latent_free_energy
from keras_capsule_poe.core.units import BinaryUnits
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.layers.routing import RoutingLayer
from keras_capsule_poe.models.boltzmann.layers import VISIBLE, Neurons


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class NeuronPoE(Neurons, RoutingLayer):
    """Product of binary experts, grouped into capsules with routed maps.

    `-E(v, h; c) = b.x + a.y + sum_ij c_ij y_j^T W_ij x_i`, with `x = v/s - mu` and
    `y = h - lambda`. Gaussian units add `-|v/s|^2/2`, up to a constant. Given the coupling
    coefficients c, this is an RBM with the maps `c_ij W_ij`. The option `routing` defines c:

    - `"per_image"`: dynamic routing of each image, constant along a Gibbs chain. Each image has
      its own partition function, so v has no likelihood.
    - `"averaged"`: `mean_coefficients` for all images. An exact Boltzmann machine.
    - `"latent"`: each visible capsule has one latent parent c_i. Exact in (v, h, c). Mean field
      is dynamic routing, see `functions.LatentRouter`, which uses `routing_iterations` and
      `coefficient_sum`.

    Args:
        capsules: int, J.
        dim: int, E, binary units of a capsule.
        visible: `"gaussian"`, `"bernoulli"` for v in `{0, 1}`, or `"unit"` for v in `[0, 1]`.
        routing: `"per_image"`, `"averaged"` or `"latent"`.
        centering: bool, use the offsets mu and lambda. Otherwise they are zero.
        learn_variance: bool, train s^2 of Gaussian units.
        kernel_initializer, bias_initializer: For W and a.
        **kwargs: Arguments of `RoutingLayer`.

    Call arguments:
        inputs: Tensor (B, I, D), v.

    Returns:
        Tensor (B, J, E), p(h = 1 | v).

    Raises:
        ValueError: If an argument or the input shape is invalid.

    Example:
        >>> experts = NeuronPoE(capsules=5, dim=3)
        >>> v = keras.random.normal((2, 6, 4), seed=0)
        >>> experts(v).shape, experts.free_energy(v).shape
        (TensorShape([2, 5, 3]), TensorShape([2]))
        >>> experts.contrastive_divergence(v, seed=0).gradient.shape
        TensorShape([6, 5, 3, 4])

    Reference:
        [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons.
    """

    READINGS: tuple[str, ...] = ("per_image", "averaged", "latent")

    def __init__(
        self,
        capsules: int,
        dim: int,
        visible: str = "gaussian",
        *,
        routing: str = "per_image",
        centering: bool = True,
        learn_variance: bool = False,
        routing_iterations: int = 4,
        kernel_initializer: Identifier = None,
        bias_initializer: Identifier = "zeros",
        **kwargs: Any,
    ) -> None:
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=0.01)
        super().__init__(
            capsules,
            dim,
            routing_iterations=routing_iterations,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        self.visible = one_of("visible", visible, tuple(VISIBLE))
        self.routing = one_of("routing", routing, self.READINGS)
        if routing == "latent" and self.options.softmax_over != "outputs":
            raise ValueError(
                "`softmax_over` must be 'outputs' where parents are latent. "
                f"Received: softmax_over={self.options.softmax_over!r}"
            )
        if self.use_bias:
            raise ValueError("`use_bias` must be False: neurons have biases. Received: True")
        self.bias_initializer = keras.initializers.get(bias_initializer)
        # The energy is that of all visible neurons.
        self.supports_masking = False
        self.centering, self.learn_variance = bool(centering), bool(learn_variance)

    def build(self, input_shape):
        super().build(input_shape)
        inputs, dim = tuple(input_shape)[1:]
        self.add_neurons((self.capsules, self.dim), (inputs, dim), self.bias_initializer)
        side = inputs if self.options.softmax_over == "inputs" else self.capsules
        uniform = keras.initializers.Constant(self.coefficient_scale / side)
        options = {"trainable": False, "dtype": self.variable_dtype, "autocast": False}
        # Row 0 is the mean over all images, row 1 + j over the images that capsule j wins.
        self.mean_coefficients = self.add_weight(
            (1 + self.capsules, inputs, self.capsules), uniform, name="mean_coefficients", **options
        )
        self.built = True

    def harmonium(self, coefficients=None):
        """Return the `functions.Harmonium` of coefficients ([B,] I, J). None: the averaged ones."""
        c = self.mean_coefficients[0] if coefficients is None else coefficients
        return Harmonium(self.maps(), *self.neuron_units(), self.hidden_bias, self.visible_bias, c)

    def harmonium_of(self, v, coefficients=None):
        """Return the `functions.Harmonium` of images v, with given coefficients or its routing."""
        if coefficients is None and self.routing != "averaged":
            coefficients = self.route(v).coefficients
        return self.harmonium(coefficients)

    def coefficients_of_winner(self, winner):
        """Return typical coefficients ([N,] I, J) of images whose longest capsule is `winner`.

        They are averages over training images. With latent parents the winner is every parent.
        """
        if self.routing in ("latent", "mixture"):
            child = ops.one_hot(winner, self.capsules, dtype=self.variable_dtype)[..., None, :]
            return self.coefficient_scale * ops.repeat(child, self.kernel.shape[0], axis=-2)
        case = 0 * winner if self.routing == "averaged" else 1 + winner
        return ops.take(self.mean_coefficients, case, axis=0)

    def capsule_machine(self, capsule):
        """Return the `functions.Harmonium` of one capsule alone, over flat units."""
        c = self.coefficients_of_winner(capsule)
        return flattened(one_capsule(self.harmonium(c), capsule))

    def state_log_weights(self):
        """Return -F(h_j) (J, 2^E) of all states of each capsule alone, in nats."""
        machines = map(self.capsule_machine, range(self.capsules))
        return ops.stack([state_log_weights(machine) for machine in machines])

    def route(self, inputs, coefficients=None):
        """Return `Routing(coefficients, z)`, (B, I, J) and (B, J, E), of v (B, I, D).

        `z_j = sum_i c_ij W_ij x_i` excludes the bias. `coefficients="uniform"` disables routing.
        """
        x = self.sent(inputs)
        if self.routing == "per_image" or coefficients is not None:
            return super().route(x, coefficients)
        if self.routing == "latent":
            return self.latent_router().route(x)
        machine = self.harmonium()
        c = ops.cast(machine.coefficients, x.dtype)
        c = ops.broadcast_to(c[None], (ops.shape(x)[0], *c.shape))
        z = machine.fields(x)
        return Routing(c, z - self.bias_of(z))

    def infer(self, inputs, coefficients=None):
        """Return c (B, I, J) and p(h = 1 | v) - lambda (B, J, E). See `route` for the arguments."""
        c, z = self.route(inputs, coefficients)
        return c, self.neuron_units()[0].mean(z + self.bias_of(z))

    def latent_router(self):
        """Return the `LatentRouter` of the layer."""
        return LatentRouter(
            self.maps(),
            self.neuron_units()[0],
            self.hidden_bias,
            routing_iterations=self.options.routing_iterations,
            coefficient_sum=self.coefficient_scale,
        )

    def call(self, inputs):
        z = self.route(inputs).z
        return ops.cast(BinaryUnits().mean(z + self.bias_of(z)), self.compute_dtype)

    def free_energy(self, v, coefficients=None):
        """Return the free energy F(v) (B,) of v (B, I, D) in nats, given the routing.

        `coefficients` (B, I, J) default to those of `route`. With latent parents the result is an
        upper bound.
        """
        return self.free_energy_of(self.harmonium_of(v, coefficients), self.sent(v))

    def free_energy_of(self, machine, x, fields=None):
        if self.routing == "latent":
            return latent_free_energy(machine, x, self.coefficient_scale) + self.log_scale()
        return super().free_energy_of(machine, x, fields)

    def reconstruct(self, v: Tensor, coefficients: Tensor | None = None) -> Tensor:
        """Return the mean-field reconstruction (B, I, D) of v, with constant coefficients."""
        machine = self.harmonium_of(v, coefficients)
        return self.received(gibbs_chain(machine, self.sent(v), 1, None)[0])

    def decode(self, y: Tensor, coefficients: Tensor) -> Tensor:
        """Return the mean of v (B, I, D) given y = h - lambda (B, J, E) and c (B, I, J)."""
        machine = self.harmonium(coefficients).transposed()
        return self.received(machine.hidden.mean(machine.fields(y)))

    def gibbs(self, v, coefficients, steps=1, seed=0):
        """Run Gibbs chains. Coefficients are constant, except that latent parents are sampled.

        Args:
            v: Tensor (B, I, D), initial states.
            coefficients: Tensor (B, I, J), initial coefficients.
            steps: int or scalar integer tensor, number of Gibbs steps.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`. None is mean field.

        Returns:
            Tensors v (B, I, D), h (B, J, E) and c (B, I, J). The last v is sampled from this h.
        """
        machine, x = self.harmonium(coefficients), self.sent(v)
        if self.routing == "latent":
            x, y, c = latent_chain(self.latent_router(), machine, x, coefficients, steps, seed)
        else:
            (x, y), c = gibbs_chain(machine, x, steps, seed), coefficients
        return self.received(x), y if self.hidden_offset is None else y + self.hidden_offset, c

    def prior_coefficients(self, n, seed):
        """Return coefficients (n, I, J) without images: averaged, or those of sampled parents."""
        c = ops.broadcast_to(self.mean_coefficients[0], (n, *self.mean_coefficients.shape[1:]))
        if self.routing != "latent":
            return c
        parent = draw_index(ops.zeros_like(c), seed)
        return self.coefficient_scale * ops.one_hot(parent, self.capsules, dtype=c.dtype)

    def move_offsets(self, visible, hidden, coefficients=None):
        """Add `visible` (I, D) to mu and `hidden` (J, E) to lambda; keep the model of c (I, J)."""
        machine = self.harmonium(coefficients)
        up, down = machine.fields(visible[None]), machine.transposed().fields(hidden[None])
        self.hidden_bias.assign(up[0])
        self.visible_bias.assign(down[0])
        self.visible_offset.assign_add(visible)
        self.hidden_offset.assign_add(hidden)


# Initial log-odds, in nats, that the first unit of a capsule is on.
_ON = 5.0


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class NeuronMixture(NeuronPoE):
    """Mixture of restricted Boltzmann machines in which one capsule generates the whole image.

    This is a `NeuronPoE` whose parts all have the same latent parent k, and only the units of
    capsule k are on. The routing is the posterior P(k | v), and log P(v), its gradient and samples
    are exact, see `functions.BoltzmannMixture`.

    Args:
        capsules: int, J.
        dim: int, E, binary units of a capsule, at most 20.
        routing: `"mixture"`.
        coefficient_sum: float, factor on the maps of the parent.
        **kwargs: Other arguments of `NeuronPoE`. Visible units are Gaussian of unit variance
            and not centred.

    Call arguments:
        inputs: Tensor (B, I, D), v.

    Returns:
        Tensor (B, J, E), P(h = 1 | v).

    Raises:
        ValueError: If an argument or the input shape is invalid.

    Example:
        >>> experts = NeuronMixture(capsules=5, dim=3)
        >>> v = keras.random.normal((2, 6, 4), seed=0)
        >>> experts(v).shape, experts.free_energy(v).shape
        (TensorShape([2, 5, 3]), TensorShape([2]))
        >>> experts.likelihood_gradient(v)[0].kernel.shape
        TensorShape([6, 5, 3, 4])

    Reference:
        [Nair & Hinton, 2008](https://papers.nips.cc/paper/3536), implicit mixtures of RBMs.
    """

    READINGS = ("mixture",)

    def __init__(self, capsules: int, dim: int, **kwargs: Any) -> None:
        defaults = {"routing": "mixture", "centering": False, "use_routing_bias": True}
        super().__init__(capsules, dim, **{**defaults, **kwargs})
        needed = {"visible": "gaussian", "centering": False, "learn_variance": False}
        for name, value in needed.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"`{name}` must be {value!r} where one capsule makes the whole image. "
                    f"Received: {name}={getattr(self, name)!r}"
                )
        if dim > MOST_NEURONS:
            raise ValueError(
                f"`dim` must be at most {MOST_NEURONS}: all states of a capsule are summed. "
                f"Received: dim={dim!r}"
            )

    def mixture(self):
        """Return the `functions.BoltzmannMixture` over flat visible units."""
        kernel = ops.cast(self.kernel, self.variable_dtype)
        kernel = ops.reshape(ops.transpose(kernel, (1, 2, 0, 3)), (self.capsules, self.dim, -1))
        return BoltzmannMixture(
            self.coefficient_scale * kernel,
            self.hidden_bias,
            ops.reshape(self.visible_bias, (-1,)),
            self.routing_bias,
        )

    def start_from_groups(self, groups):
        """Initialize each capsule to the mean and principal axes of one of J groups (n, I, D).

        The first unit is almost always on. Every other unit is on with probability 1/2 and moves
        v along one principal axis by two standard deviations.
        """
        from sklearn.utils.extmath import randomized_svd

        kernel = ops.convert_to_numpy(self.kernel).astype("float64").transpose(1, 2, 0, 3).copy()
        shape = kernel.shape
        kernel = kernel.reshape(*shape[:2], -1) * self.coefficient_scale
        bias = np.zeros(shape[:2])
        for maps, own, group in zip(kernel, bias, groups, strict=True):
            x = np.asarray(group, "float64").reshape(len(group), -1)
            mean = x.mean(axis=0)
            _, sizes, axes = randomized_svd(x - mean, self.dim - 1, random_state=0)
            maps[1 : 1 + len(axes)] = 2 / np.sqrt(len(x)) * sizes[:, None] * axes
            maps[0] = mean - maps[1:].sum(axis=0) / 2
            own[1:] = -maps[1:] @ maps[0] - np.square(maps[1:]).sum(axis=1) / 2
            # Summing out unit e gives 1 + exp(-w_0.w_e) if the first unit is off, 2 if it is on.
            off = np.logaddexp(0.0, -maps[1:] @ maps[0]) - np.log(2.0)
            own[0] = _ON + off.sum() - np.square(maps[0]).sum() / 2
        kernel = kernel.reshape(shape).transpose(2, 0, 1, 3) / self.coefficient_scale
        self.kernel.assign(kernel)
        self.hidden_bias.assign(bias)

    def likelihood_gradient(self, v):
        """Return the exact `MixtureGradient` of the mean log P(v), and the `Posterior`."""
        found, posterior = self.mixture().gradient(self._flat(v))
        inputs, *_, dim = self.kernel.shape
        kernel = ops.reshape(found.kernel, (self.capsules, self.dim, inputs, dim))
        return MixtureGradient(
            self.coefficient_scale * ops.transpose(kernel, (2, 0, 1, 3)),
            found.hidden_bias,
            ops.reshape(found.visible_bias, (inputs, dim)),
            found.shares,
        ), posterior

    def posterior(self, v):
        """Return the `functions.Posterior` of v (B, I, D)."""
        return self.mixture().infer(self._flat(v))

    def log_likelihoods(self, v):
        """Return log P(v | k) (B, J) of v (B, I, D), in nats."""
        mixture = self.mixture()
        return mixture.log_joint(self._flat(v)) - mixture.log_shares

    def decode_neurons(self, neurons):
        """Return E[v | h] (B, I, D) of hidden units (B, J, E)."""
        return ops.reshape(self.mixture().decode(neurons), (-1, *self.visible_bias.shape))

    def route(self, inputs, coefficients=None):
        if coefficients is not None:
            return super().route(inputs, coefficients)
        mixture, v = self.mixture(), self._flat(inputs)
        parent = mixture.infer(v).parent
        z = parent[..., None] * (mixture.fields(v) - self.hidden_bias)
        return Routing(self._shared(parent), z)

    def infer(self, inputs, coefficients=None):
        if coefficients is not None:
            return super().infer(inputs, coefficients)
        found = self.posterior(inputs)
        return self._shared(found.parent), found.neurons

    def call(self, inputs):
        return ops.cast(self.infer(inputs)[1], self.compute_dtype)

    def free_energy(self, v, coefficients=None):
        """Return -log P(v) (B,) of v (B, I, D), in nats, or F(v) given `coefficients` (B, I, J)."""
        if coefficients is not None:
            return super().free_energy(v, coefficients)
        return -self.mixture().log_density(self._flat(v))

    def reconstruct(self, v: Tensor, coefficients: Tensor | None = None) -> Tensor:
        """Return the mean of v (B, I, D) given P(h | v)."""
        if coefficients is not None:
            return super().reconstruct(v, coefficients)
        return self.decode_neurons(self.posterior(v).neurons)

    def prior_coefficients(self, n, seed):
        parent = draw_index(ops.broadcast_to(self.routing_bias, (n, self.capsules)), seed)
        return self.coefficients_of_winner(parent)

    def draw(self, n, seed):
        """Draw n exact samples: v (n, I, D), h (n, J, E) and the parents (n,)."""
        v, h, parent = self.mixture().draw(n, seed)
        return ops.reshape(v, (n, *self.visible_bias.shape)), h, parent

    def gibbs(self, v, coefficients, steps=1, seed=0):
        if seed is None:
            return super().gibbs(v, coefficients, steps, seed)
        mixture, stream = self.mixture(), streams(seed, 1)[0]

        def step(i, state):
            return mixture.gibbs_step(state[0], stream.later(i))

        first = step(0, (self._flat(v),))
        v_last, h, parent = ops.fori_loop(1, steps, step, first)
        return ops.reshape(v_last, ops.shape(v)), h, self.coefficients_of_winner(parent)

    def _flat(self, v):
        return ops.reshape(self.standardised(v), (-1, self.visible_bias.shape[0] * v.shape[-1]))

    def _shared(self, parent):
        c = self.coefficient_scale * ops.cast(parent, self.variable_dtype)
        return ops.repeat(c[:, None], self.kernel.shape[0], axis=1)
