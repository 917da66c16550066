"""Top-down sampling of visible units from the hidden units of a layer."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Seed, Serializable, Tensor
from keras_capsule_poe.core.latent_routing import parents_given_hidden
from keras_capsule_poe.core.randomness import StatelessSeed, streams
from keras_capsule_poe.core.routing import winners
from keras_capsule_poe.models.base.exportable import Exportable
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.boltzmann.layers import RestrictedBoltzmannMachine
from keras_capsule_poe.models.boltzmann.model import HarmoniumModel


def draw_visible(layer, h, seed, mean=False):
    """Sample (or with `mean` return the mean of) v (B, [I,] D) given h (B, [J,] E)."""
    first, second = streams(seed, 2)
    machine = layer.harmonium()
    y = h if layer.hidden_offset is None else h - layer.hidden_offset
    if layer.routing == "latent":
        c = parents_given_hidden(machine, y, layer.coefficient_scale, first)
        machine = layer.harmonium(c)
    elif layer.routing in ("held", "mixture"):
        # Per-image coefficients do not follow from h: use the means of the winner's images.
        machine = layer.harmonium(layer.coefficients_of_winner(winners(y)))
    z = machine.transposed().fields(y)
    return layer.received(machine.visible.mean(z) if mean else machine.visible.sample(z, second))


@keras.saving.register_keras_serializable("keras_capsule_poe")
class DeepBeliefNetwork(Exportable, keras.Model):
    """Deep belief network: a stack of RBMs, each a model of the hidden neurons below it.

    The visible neurons of layer l + 1 are p(h | v) of layer l. A `NeuronPoE` takes them as
    J capsules of E neurons, a `RestrictedBoltzmannMachine` as one flat vector. To generate, the
    top RBM draws its neurons, and the layers below draw their v from p(v | h) in turn.

    Args:
        layers: list of two or more `HarmoniumModel` or `NeuronExperts`, the bottom first. Layers
            above the bottom need `"bernoulli"` visible neurons.
        **kwargs: Base model arguments.

    Call arguments:
        inputs: Tensor v, as the bottom layer takes it.

    Returns:
        Tensor, `p(h = 1)` of the top layer's hidden neurons.

    Raises:
        ValueError: If a layer has a wrong type or wrong visible neurons, or there is only one.

    Example:

    >>> from keras_capsule_poe import NeuronExperts
    >>> from keras_capsule_poe import NeuronPoE
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

    def __init__(self, layers: Sequence[Serializable], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stack = [deserialized(layer) for layer in layers]
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
            build_once(layer, input_shape)
            if level + 1 < len(self.stack):
                hidden = layer.compute_output_shape(input_shape)
                input_shape = (None, *self._visible_shape(level + 1, hidden[1:]))
        self.built = True

    def call(self, inputs):
        return self.recognition(inputs)[-1]

    def recognition(self, v):
        """Return the list of mean-field `p(h = 1 | v)` of all layers, bottom first."""
        found = []
        for level, layer in enumerate(self.stack):
            v = layer(self._as_visible(v, level) if level else v)
            found.append(v)
        return found

    def fit(
        self,
        x: Any,
        epochs: int | Sequence[int] = 1,
        batch_size: int | None = None,
        verbose: Any = "auto",
    ) -> list[Any]:
        """Train layer after layer, each on p(h | v) of the one below; compile all layers first.

        A layer that is not built first gets its biases and offsets from its data.

        Args:
            x: Array (N, ...), v.
            epochs: int, or a list with one int per layer.
            batch_size, verbose: As in `keras.Model.fit`.

        Returns:
            list of `keras.callbacks.History`, one per layer.

        Raises:
            ValueError: If `epochs` has the wrong length.
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
        """Initialize layer `level` as the transpose of the one below, which keeps the model of v.

        The variational bound on log p(v) is then tight. Training raises the bound if it makes the
        hidden states of the data more probable under this layer.

        Raises:
            ValueError: If `level` is below one, or the two layers are not built
                `RestrictedBoltzmannMachine`s of mirrored sizes over Bernoulli neurons, with equal
                centring.
        """
        upper, lower = self.stack[level].machine, self.stack[level - 1].machine
        fits = all(isinstance(m, RestrictedBoltzmannMachine) for m in (upper, lower))
        fits = fits and lower.visible == "bernoulli" and upper.centering == lower.centering
        if level < 1 or not fits or upper.kernel.shape != lower.kernel.shape[::-1]:
            raise ValueError(
                "Only built Boltzmann machines of Bernoulli neurons are tied, D neurons above E "
                f"above D. Received: level={level}"
            )
        # Copy, because JAX donates buffers to the training step and must not share them.
        upper.kernel.assign(ops.copy(ops.transpose(lower.kernel)))
        names = ["bias", "offset"] if lower.centering else ["bias"]
        for name in names:
            for side, other in (("visible", "hidden"), ("hidden", "visible")):
                values = getattr(lower, f"{other}_{name}").value
                getattr(upper, f"{side}_{name}").assign(ops.copy(values))

    def sample(self, n: int, steps: int = 1000, seed: Seed = 0, mean: bool = False) -> Tensor:
        """Draw v (n, ...): Gibbs steps from noise in the top RBM, then one pass down.

        Args:
            n, steps: int, number of samples and of Gibbs steps.
            seed: int or scalar integer tensor.
            mean: bool, return E[v | h] of the bottom layer instead of a draw.
        """
        first, second = streams(StatelessSeed(seed), 2)
        return self.descend(self.stack[-1].sample(n, steps, first), second, mean)

    def descend(self, v, seed=0, mean=False):
        """Draw v of the bottom layer given visible neurons v (B, ...) of the top one."""
        for level, stream in reversed(list(enumerate(streams(seed, len(self.stack) - 1)))):
            layer = self.stack[level].machine
            h = ops.reshape(v, (-1, *layer.hidden_bias.shape))
            v = draw_visible(layer, h, stream, mean and not level)
        return v

    def _visible_shape(self, level, hidden):
        """Return the shape in which a layer takes the hidden neurons below it."""
        is_flat = isinstance(self.stack[level].machine, RestrictedBoltzmannMachine)
        return (math.prod(hidden),) if is_flat else hidden

    def _as_visible(self, h, level):
        return ops.reshape(h, (-1, *self._visible_shape(level, h.shape[1:])))

    def get_config(self):
        layers = [keras.saving.serialize_keras_object(layer) for layer in self.stack]
        return {**super().get_config(), "layers": layers}
