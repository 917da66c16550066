"""Expert neurons of which one capsule makes each image, fitted by exact maximum likelihood."""

import keras
from keras import ops

from keras_capsule_poe.layers.neuron_mixture import NeuronMixture
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.models.neurons.experts import NeuronExperts
from keras_capsule_poe.models.randomness import replica_mean


@keras.saving.register_keras_serializable("keras_capsule_poe")
class NeuronMixtureExperts(NeuronExperts):
    """Trains a `NeuronMixture` along the gradient of log P(v), derived by hand.

    There is no chain: the model's term is a sum over all states of each capsule, what contrastive
    divergence tends to as its chains grow. With `balance` zero the shares of the capsules
    stay equal.

    Args:
        machine: `NeuronMixture`, or its config.
        algorithm: `"ml"`.
        **kwargs: `NeuronExperts` arguments, but for those of chains.

    Call arguments:
        inputs: Tensor (B, I, D), v.

    Returns:
        Tensor (B, J, E), P(h = 1 | v).

    Raises:
        ValueError: If an argument is not as above.
        RuntimeError: When fitted on another backend than TensorFlow.

    Examples:

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

    def __init__(self, machine, algorithm="ml", **kwargs):
        super().__init__(machine, algorithm=algorithm, **kwargs)

    def build(self, input_shape):
        if not self.machine.built:
            self.machine.build(input_shape)
        self.built = True

    def train_step(self, data):
        v, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        layer = self.machine
        found, posterior = layer.likelihood_gradient(v)
        share = replica_mean(ops.mean(posterior.parent, axis=0), ops.shape(v)[0])
        self.rarest_usage.update_state(layer.capsules * share)
        error = self._error(posterior, v)
        if self.balance:
            layer.routing_bias.assign_add(self.balance * (1 - layer.capsules * share))
        update = self.apply_ascent(
            [
                (layer.kernel, found.kernel - self.weight_decay * layer.kernel),
                (layer.hidden_bias, found.hidden_bias),
                (layer.visible_bias, found.visible_bias),
            ]
        )
        return self._record(error, -posterior.log_density, update)

    def test_step(self, data):
        v, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        posterior = self.machine.posterior(v)
        return self._record(self._error(posterior, v), -posterior.log_density, 0.0)

    def _error(self, posterior, v):
        """Error of the mean-field reconstruction."""
        v = ops.cast(v, self.variable_dtype)
        return relative_error(self.machine.decode_neurons(posterior.neurons), v)

    def free_energy(self, v):
        """-log P(v), (B,), nats."""
        return self.machine.free_energy(v)
