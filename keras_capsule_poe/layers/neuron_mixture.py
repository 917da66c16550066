"""Capsules of neurons of which one makes the whole image: a mixture of Boltzmann machines."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.boltzmann_mixture import BoltzmannMixture, MixtureGradient
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.routing import Routing
from keras_capsule_poe.functions.state_tables import MOST_NEURONS
from keras_capsule_poe.layers.neuron_poe import NeuronPoE

# By how many nats a capsule's first neuron is on rather than off at the start.
_ON = 5.0


@keras.saving.register_keras_serializable("keras_capsule_poe")
class NeuronMixture(NeuronPoE):
    """A `NeuronPoE` in which all parts of an image have the same parent, a latent capsule.

    The coefficients of an image are P(k | v) for all of its parts, and only the parent's neurons
    are on. The routing is then exact inference, and so are log P(v), its gradient and the draws:
    see `functions.BoltzmannMixture`. What capsules are drawn with on their own is the model itself.

    Args:
        capsules: int, J.
        dim: int, E, neurons of a capsule, at most 20.
        routing: `"mixture"`.
        scale: float, s, that multiplies the maps of the parent.
        **kwargs: `NeuronPoE` arguments, but for those of routing, a centre and variances:
            visible neurons are Gaussian of deviation one.

    Call arguments:
        inputs: Tensor (B, I, D), v.

    Returns:
        Tensor (B, J, E), P(h = 1 | v).

    Raises:
        ValueError: If an argument or the input's shape is not as above.

    Examples:

    >>> experts = NeuronMixture(capsules=5, dim=3)
    >>> v = keras.random.normal((2, 6, 4), seed=0)
    >>> experts(v).shape, experts.free_energy(v).shape
    (TensorShape([2, 5, 3]), TensorShape([2]))
    >>> experts.likelihood_gradient(v)[0].kernel.shape
    TensorShape([6, 5, 3, 4])

    Reference:

    - [Nair & Hinton, 2008](https://papers.nips.cc/paper/3536), implicit mixtures of restricted
      Boltzmann machines
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
        """The `functions.BoltzmannMixture` over flat visible neurons, of maps s W_j."""
        kernel = ops.cast(self.kernel, self.variable_dtype)
        kernel = ops.reshape(ops.transpose(kernel, (1, 2, 0, 3)), (self.capsules, self.dim, -1))
        return BoltzmannMixture(
            self.coefficient_scale * kernel,
            self.hidden_bias,
            ops.reshape(self.visible_bias, (-1,)),
            self.routing_bias,
        )

    def start_from_groups(self, groups):
        """Sets the maps and hidden biases so that each capsule is like a group of images.

        Its first neuron is the mean image, and on; each other one moves v along one of the
        principal axes by two standard deviations, as often on as off. So v has the group's mean,
        and its variance along the axes.

        Args:
            groups: List of J arrays (n, I, D).
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
            # Where the first is off the others count 1 + exp(-w_0'w_e), where it is on 2.
            off = np.logaddexp(0.0, -maps[1:] @ maps[0]) - np.log(2.0)
            own[0] = _ON + off.sum() - np.square(maps[0]).sum() / 2
        kernel = kernel.reshape(shape).transpose(2, 0, 1, 3) / self.coefficient_scale
        self.kernel.assign(kernel)
        self.hidden_bias.assign(bias)

    def likelihood_gradient(self, v):
        """The gradient of the mean log P(v), exact.

        Args:
            v: Tensor (B, I, D).

        Returns:
            `functions.MixtureGradient`, its `kernel` (I, J, E, D) and `visible_bias` (I, D); and
            its `functions.Posterior`.
        """
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
        """The `functions.Posterior` of v (B, I, D)."""
        return self.mixture().infer(self._flat(v))

    def log_likelihoods(self, v):
        """log P(v | k) of v (B, I, D), (B, J), nats."""
        mixture = self.mixture()
        return mixture.log_joint(self._flat(v)) - mixture.log_shares

    def decode_neurons(self, neurons):
        """E[v | h] of neurons (B, J, E), (B, I, D)."""
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
        """-log P(v), (B,), nats, of v (B, I, D); the routing is summed out."""
        return -self.mixture().log_density(self._flat(v))

    def free_energy_of(self, machine, x, fields=None):
        return self.free_energy(x)

    def reconstruct(self, v, coefficients=None):
        """The mean of v given P(h | v), (B, I, D), mean field."""
        if coefficients is not None:
            return super().reconstruct(v, coefficients)
        return self.decode_neurons(self.posterior(v).neurons)

    def draw(self, n, seed):
        """Exact draws of the model: v (n, I, D), h (n, J, E), and the parents (n,)."""
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
