"""Mixture of Boltzmann machines: one capsule of binary units generates the whole image."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.boltzmann_mixture import BoltzmannMixture, MixtureGradient
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.routing import Routing
from keras_capsule_poe.functions.state_tables import MOST_NEURONS
from keras_capsule_poe.layers.neuron_poe import NeuronPoE

# Initial log-odds, in nats, that the first unit of a capsule is on.
_ON = 5.0


@keras.saving.register_keras_serializable("keras_capsule_poe")
class NeuronMixture(NeuronPoE):
    """Mixture of restricted Boltzmann machines in which one capsule generates the whole image.

    This is a `NeuronPoE` whose parts all have the same latent parent k, and only the units of
    capsule k are on. The routing is the posterior P(k | v), and log P(v), its gradient and samples
    are exact, see `functions.BoltzmannMixture`.

    Args:
        capsules: int, J.
        dim: int, E, binary units of a capsule, at most 20.
        routing: `"mixture"`.
        scale: float, factor on the maps of the parent.
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

    def __init__(
        self, capsules, dim, routing="mixture", centering=False, use_routing_bias=True, **kwargs
    ):
        super().__init__(
            capsules,
            dim,
            routing=routing,
            centering=centering,
            use_routing_bias=use_routing_bias,
            **kwargs,
        )
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
        """Return -log P(v) (B,) of v (B, I, D), in nats. `coefficients` are ignored."""
        return -self.mixture().log_density(self._flat(v))

    def free_energy_of(self, machine, x, fields=None):
        return self.free_energy(x)

    def reconstruct(self, v, coefficients=None):
        """Return the mean of v (B, I, D) given P(h | v)."""
        if coefficients is not None:
            return super().reconstruct(v, coefficients)
        return self.decode_neurons(self.posterior(v).neurons)

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
