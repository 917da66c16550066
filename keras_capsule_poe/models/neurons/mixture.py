"""Training of a mixture of expert neurons by exact maximum likelihood."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.metrics import mean_error
from keras_capsule_poe.models.neurons.experts import NeuronExperts
from keras_capsule_poe.models.neurons.layers import NeuronMixture


@keras.saving.register_keras_serializable("keras_capsule_poe")
class NeuronMixtureExperts(NeuronExperts):
    """Trains a `NeuronMixture` with the exact gradient of log P(v), derived by hand.

    The model's term is a sum over all states of each capsule, the limit of CD-k for large k. The
    mixture weights change only by load balancing (`balance`).

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

    def build(self, input_shape):
        if not self.machine.built:
            self.machine.build(input_shape)
        self.built = True

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
            "usage": layer.capsules * ops.mean(posterior.parent, axis=0),
            "ascents": [*ascents, found.hidden_bias, found.visible_bias],
        }

    def testing_step(self, data):
        v, _ = self.images_of(data)
        means = self._likelihood(self.machine.posterior(v), v)
        return self._record(means, ops.shape(v)[0], 0.0)

    def _likelihood(self, posterior, v):
        """Return batch means of the mean-field reconstruction error and of -log P(v)."""
        v = ops.cast(v, self.variable_dtype)
        error = mean_error(self.machine.decode_neurons(posterior.neurons), v)
        return {"error": error, "free_energy": -ops.mean(posterior.log_density)}

    @property
    def _learned(self):
        return [self.machine.kernel, self.machine.hidden_bias, self.machine.visible_bias]

    def free_energy(self, v):
        """Return -log P(v) (B,) in nats."""
        return self.machine.free_energy(v)
