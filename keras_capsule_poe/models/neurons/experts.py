"""Training of expert neurons on primary capsules: contrastive divergence, or exact gradients."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Seed, Serializable, Tensor
from keras_capsule_poe.core.numerics import length, share
from keras_capsule_poe.core.randomness import draw_index, streams
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.metrics import ExpertUsage, expert_usage, mean_error
from keras_capsule_poe.models.boltzmann.model import HarmoniumModel
from keras_capsule_poe.models.neurons.layers import NeuronMixture, NeuronPoE


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class NeuronExperts(HarmoniumModel):
    """Trains a `NeuronPoE` by contrastive divergence, as a `HarmoniumModel` with routed maps.

    Args:
        machine: `NeuronPoE`, or its config.
        load_balancing: Float l in `[0, 1]`, the rate of load balancing. Each step adds
            `l (1 - usage_j)` to the routing bias, where a balanced usage is one. Zero turns it
            off.
        **kwargs: `HarmoniumModel` arguments. Persistent chains and chains that start from noise
            need `routing="fixed"`, because other routings depend on the image.

    Call arguments:
        inputs: Tensor (B, I, D), the visible neurons v.

    Returns:
        Tensor (B, J, E), p(h = 1 | v).

    Raises:
        ValueError: If an argument is invalid.
        RuntimeError: If `fit` runs on another backend than TensorFlow and JAX.

    Example:

    >>> model = NeuronExperts(NeuronPoE(capsules=5, dim=3))
    >>> model.compile(keras.optimizers.SGD(0.01), jit_compile=False)
    >>> v = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
    >>> history = model.fit(v, verbose=0)
    >>> model(v).shape, model.activity(model.departure(v)).shape
    (TensorShape([8, 5, 3]), TensorShape([8, 5]))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    MACHINE: Any = NeuronPoE

    def __init__(self, machine: Serializable, load_balancing: float = 0.0, **kwargs: Any) -> None:
        super().__init__(machine, **kwargs)
        layer = self.machine
        is_of_data = self.algorithm == "cd" and self.chains_initializer == "data"
        if layer.routing in ("held", "latent") and not is_of_data:
            raise ValueError(
                "Chains must be of the data where coefficients are of the image. Received: "
                f"routing={layer.routing!r}, algorithm={self.algorithm!r}, "
                f"chains_initializer={self.chains_initializer!r}"
            )
        if load_balancing and not layer.use_routing_bias:
            raise ValueError(
                "`load_balancing` moves the routing bias: give the machine use_routing_bias=True. "
                f"Received: load_balancing={load_balancing}"
            )
        self.load_balancing = share("load_balancing", load_balancing, or_zero=True)
        self.rarest_usage = ExpertUsage(name="rarest_usage")

    def departure(self, v):
        """Return p(h = 1 | v) - lambda (B, J, E), the distance of the neurons from rest."""
        return self.machine.infer(v)[1]

    def activity(self, y):
        """Return each capsule's root mean square (B, J) of departures (B, J, E)."""
        return length(y) / self.machine.dim**0.5

    def sample(self, n: int, steps: int = 1000, seed: Seed = 0) -> Tensor:
        """Sample visible neurons: exactly for a mixture, else by Gibbs steps from noise.

        Args:
            n, steps: Integers, the numbers of samples and of Gibbs steps.
            seed: Integer, scalar integer tensor or `keras.random.SeedGenerator`.

        Returns:
            Tensor (n, I, D).

        Raises:
            ValueError: If `routing="held"`, which needs an image.
        """
        layer = self.machine
        if layer.routing == "fixed":
            return super().sample(n, steps, seed)
        if layer.routing == "mixture":
            return layer.draw(n, seed)[0]
        if layer.routing != "latent":
            raise ValueError(
                "Without an image there is nothing to route by: `routing` must be 'fixed', "
                f"'latent' or 'mixture'. Received: routing={layer.routing!r}"
            )
        first, second, third = streams(seed, 3)
        x = self._noise(layer.harmonium(), (n,), first)
        parent = draw_index(ops.zeros((n, *layer.mean_coefficients.shape[1:])), second)
        c = layer.coefficient_scale * ops.one_hot(parent, layer.capsules, dtype=x.dtype)
        return layer.gibbs(layer.received(x), c, steps, third)[0]

    def statistics(self, machine, y):
        c = machine.coefficients
        means = {"coefficients": ops.mean(c, axis=0)} if len(c.shape) == 3 else {}
        return {**means, "usage": expert_usage(self.activity(y))}

    def testing_step(self, data):
        v, _ = self.images_of(data)
        self.rarest_usage.update_state(expert_usage(self.activity(self.departure(v))))
        return super().testing_step(data)

    def update_weights(self, means, images):
        self._balance(means["usage"])
        return super().update_weights(means, images)

    def _balance(self, usage):
        self.rarest_usage.update_state(usage)
        if self.load_balancing and self.trains(self.machine.kernel):
            bias = self.machine.routing_bias
            bias.assign_add(ops.cast(self.load_balancing * (1 - usage), bias.dtype))

    def get_config(self):
        return {**super().get_config(), "load_balancing": self.load_balancing}


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class NeuronMixtureExperts(NeuronExperts):
    """Trains a `NeuronMixture` with the exact gradient of log P(v), derived by hand.

    The model's term is a sum over all states of each capsule, the limit of CD-k for large k. The
    mixture weights change only by load balancing (`load_balancing`).

    Args:
        machine: `NeuronMixture`, or its config.
        algorithm: `"ml"`, maximum likelihood.
        **kwargs: `NeuronExperts` arguments, without those of Markov chains.

    Call arguments:
        inputs: Tensor (B, I, D), the visible neurons v.

    Returns:
        Tensor (B, J, E), P(h = 1 | v).

    Raises:
        ValueError: If an argument is invalid.
        RuntimeError: If `fit` runs on another backend than TensorFlow and JAX.

    Example:

    >>> model = NeuronMixtureExperts(NeuronMixture(capsules=5, dim=3))
    >>> model.compile(keras.optimizers.SGD(0.01), jit_compile=False)
    >>> v = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
    >>> history = model.fit(v, verbose=0)
    >>> model(v).shape
    TensorShape([8, 5, 3])

    Reference:

    - [Nair & Hinton, 2008](https://papers.nips.cc/paper/3536), implicit mixtures
    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    MACHINE = NeuronMixture
    ALGORITHMS = ("ml",)

    def __init__(self, machine: Serializable, algorithm: str = "ml", **kwargs: Any) -> None:
        super().__init__(machine, algorithm=algorithm, **kwargs)

    def training_step(self, data):
        v, _ = self.images_of(data)
        means, _ = self.over_replicas(lambda v, _: (self._likelihood_step(v), {}), v)
        self._balance(means["usage"])
        update = self.apply_ascent(zip(self._learned, means["ascents"]))
        return self._record(means, ops.shape(v)[0], update)

    def _likelihood_step(self, v):
        """Return batch means of the log-likelihood gradient and of the metrics."""
        layer = self.machine
        found, posterior = layer.likelihood_gradient(v)
        ascents = [found.kernel - self.weight_decay * layer.kernel]
        return {
            **self._likelihood(posterior, v),
            "usage": self._usage(posterior),
            "ascents": [*ascents, found.hidden_bias, found.visible_bias],
        }

    def testing_step(self, data):
        v, _ = self.images_of(data)
        posterior = self.machine.posterior(v)
        means = self._likelihood(posterior, v)
        self.rarest_usage.update_state(self._usage(posterior))
        return self._record(means, ops.shape(v)[0], None)

    def _usage(self, posterior):
        return self.machine.capsules * ops.mean(posterior.parent, axis=0)

    def _likelihood(self, posterior, v):
        """Return batch means of the mean-field reconstruction error and of -log P(v)."""
        v = ops.cast(v, self.variable_dtype)
        error = mean_error(self.machine.decode_neurons(posterior.neurons), v)
        return {"error": error, "free_energy": -ops.mean(posterior.log_density)}
