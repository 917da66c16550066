"""Layers of hidden neurons stacked greedily: a deep belief network."""

import math

import keras
from keras import ops

from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.layers.boltzmann import RestrictedBoltzmannMachine
from keras_capsule_poe.layers.descent import draw_visible
from keras_capsule_poe.models.harmonium import HarmoniumModel
from keras_capsule_poe.models.randomness import StatelessSeed


@keras.saving.register_keras_serializable("keras_capsule_poe")
class DeepBeliefNetwork(keras.Model):
    """Machines each of which models the hidden neurons of the one below.

    The visible neurons of layer l + 1 are p(h | v) of layer l: J capsules of E neurons feed a
    `NeuronPoE` as they are, a `RestrictedBoltzmannMachine` side by side. The top layer and the
    way down from it are the model: h of the top machine's law, then v of p(v | h), layer after
    layer.

    Args:
        layers: list of `HarmoniumModel` or `NeuronExperts`, the bottom first. Those above it have
            `"bernoulli"` visible neurons.
        **kwargs: Base model arguments.

    Call arguments:
        inputs: Tensor, v, as the bottom layer takes it.

    Returns:
        Tensor, p(h = 1) of the top layer's hidden neurons.

    Raises:
        ValueError: If an argument is not as above.

    Examples:

    >>> from keras_capsule_poe.models import NeuronExperts
    >>> from keras_capsule_poe.layers import NeuronPoE
    >>> bottom = NeuronExperts(NeuronPoE(capsules=5, dim=3))
    >>> top = HarmoniumModel(RestrictedBoltzmannMachine(7), "pcd", binarize="stochastic")
    >>> for layer in (bottom, top):
    ...     layer.compile(keras.optimizers.SGD(0.01), jit_compile=False)
    >>> network = DeepBeliefNetwork([bottom, top])
    >>> v = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
    >>> histories = network.fit(v, verbose=0)
    >>> network(v).shape, network.sample(2, steps=10, seed=0).shape
    (TensorShape([8, 7]), TensorShape([2, 6, 4]))

    Reference:

    - [Hinton et al., 2006](https://doi.org/10.1162/neco.2006.18.7.1527)
    """

    def __init__(self, layers, **kwargs):
        super().__init__(**kwargs)
        self.stack = [
            keras.saving.deserialize_keras_object(layer) if isinstance(layer, dict) else layer
            for layer in layers
        ]
        for level, layer in enumerate(self.stack):
            if not isinstance(layer, HarmoniumModel):
                raise ValueError(
                    "`layers` must be HarmoniumModels or NeuronExperts. "
                    f"Received: layers[{level}]={layer!r}"
                )
            if level and layer.machine.visible != "bernoulli":
                raise ValueError(
                    "A layer above the bottom one must have 'bernoulli' visible neurons. "
                    f"Received: layers[{level}] with visible={layer.machine.visible!r}"
                )
        if len(self.stack) < 2:
            raise ValueError(
                f"`layers` must be two layers or more. Received: {len(self.stack)} layers"
            )

    def build(self, input_shape):
        for level, layer in enumerate(self.stack):
            if not layer.built:
                layer.build(input_shape)
            if level + 1 < len(self.stack):
                hidden = layer.compute_output_shape(input_shape)
                input_shape = (None, *self._visible_shape(level + 1, hidden[1:]))
        self.built = True

    def call(self, inputs):
        return self.recognition(inputs)[-1]

    def recognition(self, v):
        """p(h = 1 | v) of each layer, of those of the layer below, mean field: a list."""
        found = []
        for level, layer in enumerate(self.stack):
            v = layer(self._as_visible(v, level) if level else v)
            found.append(v)
        return found

    def fit(self, x, epochs=1, batch_size=None, verbose="auto"):
        """Trains layer after layer, each on p(h | v) of the one below; all must be compiled.

        A layer that is not built yet gets its biases and centre from its data first.

        Args:
            x: Array (N, ...), v.
            epochs: int, or a list of them, one a layer.
            batch_size, verbose: As of `keras.Model.fit`.

        Returns:
            list of `keras.callbacks.History`, one a layer.

        Raises:
            ValueError: If `epochs` are not as many as layers.
        """
        epochs = [epochs] * len(self.stack) if isinstance(epochs, int) else list(epochs)
        if len(epochs) != len(self.stack):
            raise ValueError(
                f"`epochs` must be an int, or {len(self.stack)} of them. Received: epochs={epochs}"
            )
        histories = []
        for level, layer in enumerate(self.stack):
            if level:
                below = self.stack[level - 1].predict(x, batch_size=batch_size, verbose=0)
                x = self._as_visible(below, level)
            if not layer.built:
                layer.adapt(x)
                layer.build((None, *x.shape[1:]))
            options = {"epochs": epochs[level], "batch_size": batch_size, "verbose": verbose}
            histories.append(layer.fit(x, **options))
        self.built = True
        return histories

    def tie(self, level):
        """Starts a layer as the one below upside down, so that the model of v stays what it was.

        With this start the variational bound of log p(v) is log p(v) of the layers below, and
        whatever raises the log-probability that the layer gives to h of the data, raises it.

        Args:
            level: int, one or more.

        Raises:
            ValueError: If the two are not `RestrictedBoltzmannMachine`s of mirrored sizes over
                Bernoulli neurons, alike in centring.
        """
        upper, lower = self.stack[level].machine, self.stack[level - 1].machine
        fits = all(isinstance(m, RestrictedBoltzmannMachine) for m in (upper, lower))
        fits = fits and lower.visible == "bernoulli" and upper.centering == lower.centering
        if level < 1 or not fits or upper.kernel.shape != lower.kernel.shape[::-1]:
            raise ValueError(
                "Only built Boltzmann machines of Bernoulli neurons are tied, D neurons above E "
                f"above D. Received: level={level}"
            )
        # Copies: Jax, which gives a training step its buffers for good, would share them.
        upper.kernel.assign(ops.copy(ops.transpose(lower.kernel)))
        names = ["bias", "offset"] if lower.centering else ["bias"]
        for name in names:
            for side, other in (("visible", "hidden"), ("hidden", "visible")):
                values = getattr(lower, f"{other}_{name}").value
                getattr(upper, f"{side}_{name}").assign(ops.copy(values))

    def sample(self, n, steps=1000, seed=0, mean=False):
        """Draws v: Gibbs steps from noise in the top machine, then all the way down.

        Args:
            n: int.
            steps: int, of Gibbs sampling.
            seed: int or scalar integer tensor.
            mean: bool, whether the bottom layer gives E[v | h] instead of a draw.

        Returns:
            Tensor (n, ...), v.
        """
        first, second = streams(StatelessSeed(seed), 2)
        return self.descend(self.stack[-1].sample(n, steps, first), second, mean)

    def descend(self, v, seed=0, mean=False):
        """Draws v of the bottom layer given the visible neurons of the top one.

        Args:
            v: Tensor (B, ...), the top layer's visible neurons.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
            mean: See `sample`.

        Returns:
            Tensor (B, ...).
        """
        for level, stream in reversed(list(enumerate(streams(seed, len(self.stack) - 1)))):
            layer = self.stack[level].machine
            h = ops.reshape(v, (-1, *layer.hidden_bias.shape))
            v = draw_visible(layer, h, stream, mean and not level)
        return v

    def _visible_shape(self, level, hidden):
        """The shape in which a layer takes what the one below has as hidden neurons."""
        is_flat = isinstance(self.stack[level].machine, RestrictedBoltzmannMachine)
        return (math.prod(hidden),) if is_flat else hidden

    def _as_visible(self, h, level):
        return ops.reshape(h, (-1, *self._visible_shape(level, h.shape[1:])))

    def get_config(self):
        layers = [keras.saving.serialize_keras_object(layer) for layer in self.stack]
        return {**super().get_config(), "layers": layers}
