"""Layer of a restricted Boltzmann machine, and the neurons of other layers with its energy."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Identifier, Tensor
from keras_capsule_poe.core.arguments import Configured
from keras_capsule_poe.core.divergence import contrastive_divergence
from keras_capsule_poe.core.harmonium import Harmonium, gibbs_chain, log_variance_gradient
from keras_capsule_poe.core.likelihood import log_likelihood
from keras_capsule_poe.core.maps import DenseMaps
from keras_capsule_poe.core.numerics import one_of, whole_number
from keras_capsule_poe.core.units import BinaryUnits, CentredUnits, GaussianUnits, UnitIntervalUnits
from keras_capsule_poe.models.base.inputs import FINITE, PIXELS, check_values

VISIBLE = {"bernoulli": BinaryUnits, "gaussian": GaussianUnits, "unit": UnitIntervalUnits}


class Neurons:
    """Mixin for Keras layers with the attributes `visible`, `centering` and `learn_variance`."""

    # An RBM has one harmonium for all images.
    routing = "averaged"

    def add_neurons(self, hidden_shape, visible_shape, hidden_bias="zeros"):
        """Add the bias weights, and offsets and log-variances if they are used."""
        # No autocast: energies are summed in float32 at least.
        add = functools.partial(self.add_weight, dtype=self.variable_dtype, autocast=False)
        self.hidden_bias = add(hidden_shape, hidden_bias, name="hidden_bias")
        self.visible_bias = add(visible_shape, "zeros", name="visible_bias")
        self.hidden_offset = self.visible_offset = self.log_variance = None
        if self.centering:
            half = keras.initializers.Constant(0.5)
            middle = "zeros" if self.visible == "gaussian" else half
            self.hidden_offset = add(hidden_shape, half, trainable=False, name="hidden_offset")
            self.visible_offset = add(visible_shape, middle, trainable=False, name="visible_offset")
        if self.visible == "gaussian":
            learned = self.learn_variance
            self.log_variance = add(visible_shape, "zeros", trainable=learned, name="log_variance")

    def adapt(self, data):
        """Fit the visible biases, the offset mu and s^2 to data v (N, ...), assuming W = 0."""
        check_values(data, "data", FINITE if self.visible == "gaussian" else PIXELS)
        data = np.asarray(data, "float64")
        if not self.built:
            self.build((None, *data.shape[1:]))
        if self.visible == "gaussian":
            # A constant column has no variance: use a thousandth of the mean variance.
            variance = np.maximum(data.var(axis=0), 1e-3 * data.var(axis=0).mean() + 1e-12)
            self.log_variance.assign(np.log(variance))
        bias, mean = self.independent(data)
        self.visible_bias.assign(bias)
        if self.centering:
            self.visible_offset.assign(mean)

    def independent(self, data):
        """Return visible biases and means fitted to v (N, ...) with W = 0, in units of s."""
        mean = np.asarray(data).mean(axis=0, dtype="float64")
        if self.visible == "gaussian":
            mean = mean / np.exp(ops.convert_to_numpy(self.log_variance).astype("float64") / 2)
            return mean, mean
        # Laplace smoothing: count each unit once more in each state.
        mean = (len(data) * mean + 1) / (len(data) + 2)
        is_binary = self.visible == "bernoulli"
        return np.log(mean / (1 - mean)) if is_binary else UnitIntervalUnits().field(mean), mean

    def bias_of(self, z):
        """Return the hidden bias in the dtype of z."""
        return ops.cast(self.hidden_bias, z.dtype)

    def neuron_units(self):
        """Return the hidden and the visible units, with their offsets."""
        hidden, visible = BinaryUnits(), VISIBLE[self.visible]()
        if self.centering:
            hidden = CentredUnits(hidden, self.hidden_offset)
            visible = CentredUnits(visible, self.visible_offset)
        return hidden, visible

    def log_scale(self):
        """Return sum log s, the difference between -log p(v) and -log p(v/s)."""
        return 0.0 if self.log_variance is None else ops.sum(self.log_variance) / 2

    def harmonium_of(self, v, coefficients=None):
        """Return the `functions.Harmonium` of images v, routed if the routing is of the image."""
        return self.harmonium()

    def contrastive_divergence(self, v, coefficients=None, **options):
        """Return the `functions.Divergence` of data v.

        Args:
            v: Tensor (B, D), or (B, I, D) of capsules.
            coefficients: Tensor (B, I, J) or (I, J), kept constant. None: as `routing` says.
            **options: See `functions.contrastive_divergence`. Persistent chains are in the
                coordinates of `sent`, as its `reconstruction` returns them.

        Raises:
            ValueError: If `chains` are given and `routing` is not `"averaged"`.
        """
        if options.get("chains") is not None and self.routing != "averaged":
            raise ValueError(
                "`chains` must be None where coefficients are of the image: they would be routed "
                f"anew. Received: routing={self.routing!r}"
            )
        is_latent = self.routing == "latent" and coefficients is None
        machine = self.harmonium() if is_latent else self.harmonium_of(v, coefficients)
        return contrastive_divergence(
            x=self.sent(v), **self.sides_of(machine, is_latent), **options
        )

    def sides_of(self, machine, is_latent):
        """Return arguments of `contrastive_divergence`; each step samples latent parents anew."""
        return machine.sides(self.latent_router() if is_latent else None)

    def free_energy_of(self, machine, x, fields=None):
        """Return F (B,) in nats from x = `sent(v)`; `fields` are pre-activations, if known."""
        return machine.free_energy(x, fields) + self.log_scale()

    def sent(self, v):
        """Return x = v/s - mu."""
        x = self.standardised(v)
        return x if self.visible_offset is None else x - self.visible_offset

    def received(self, x):
        """Return v = s (x + mu), the inverse of `sent`."""
        x = x if self.visible_offset is None else x + self.visible_offset
        return x if self.log_variance is None else x * ops.exp(self.log_variance / 2)

    def noise(self, n, seed):
        """Draw v (n, ...) of the machine without maps."""
        bias = self.visible_bias
        fields = ops.broadcast_to(bias, (n, *bias.shape))
        return self.received(self.neuron_units()[1].sample(fields, seed))

    def standardised(self, v):
        """Return v/s. Raise a ValueError if v has another shape than the visible units."""
        v, neurons = ops.cast(v, self.variable_dtype), tuple(self.visible_bias.shape)
        # A single unit would broadcast.
        if tuple(v.shape[-len(neurons) :]) != neurons:
            raise ValueError(
                f"`v` must have shape (..., {', '.join(map(str, neurons))}), the visible neurons. "
                f"Received: shape {tuple(v.shape)}"
            )
        return v if self.log_variance is None else v * ops.exp(-self.log_variance / 2)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class RestrictedBoltzmannMachine(Neurons, Configured, keras.layers.Layer):
    """Restricted Boltzmann machine (RBM): binary hidden units h over visible units v.

    `-E(v, h) = b.x + y.(a + W x)`, with `x = v/s - mu` and `y = h - lambda`. Gaussian units add
    `-|v/s|^2/2`, up to a constant, and have standard deviations s. The other units have `s = 1`.

    Args:
        units: int, E, number of hidden units.
        visible: `"bernoulli"` for v in `{0, 1}`, `"gaussian"`, or `"unit"` for v in `[0, 1]`.
        centering: bool, use the offsets mu and lambda. Otherwise they are zero, and means far
            from zero slow down training.
        learn_variance: bool, train s^2 of Gaussian units. Otherwise only `adapt` sets it.
        kernel_initializer: Initializer of W. None is normal with standard deviation 0.01.

    Call arguments:
        inputs: Tensor (B, D), v.

    Returns:
        Tensor (B, E), p(h = 1 | v).

    Raises:
        ValueError: If an argument is invalid or the input is not of shape (B, D).

    Example:
        >>> machine = RestrictedBoltzmannMachine(3)
        >>> v = np.array([[0.0, 1.0, 1.0, 0.0]], "float32")
        >>> machine(v).shape, machine.free_energy(v).shape
        (TensorShape([1, 3]), TensorShape([1]))
        >>> [side.shape for side in machine.gibbs(v, steps=5, seed=0)]
        [TensorShape([1, 4]), TensorShape([1, 3])]

    Reference:
        - [Hinton, 2012](https://doi.org/10.1007/978-3-642-35289-8_32), practical guide.
        - [Melchior et al., 2016](https://jmlr.org/papers/v17/14-237.html), centring.
    """

    def __init__(
        self,
        units: int,
        visible: str = "bernoulli",
        centering: bool = True,
        learn_variance: bool = True,
        kernel_initializer: Identifier = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = whole_number("units", units)
        self.visible = one_of("visible", visible, tuple(VISIBLE))
        self.centering = bool(centering)
        self.learn_variance = bool(learn_variance)
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=0.01)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, input_shape):
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "The visible neurons must be flat, of shape (B, D). "
                f"Received: input_shape={tuple(input_shape)}"
            )
        neurons = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(ndim=2, axes={1: neurons})
        self.kernel = self.add_weight(
            (self.units, neurons),
            self.kernel_initializer,
            name="kernel",
            dtype=self.variable_dtype,
            autocast=False,
        )
        self.add_neurons((self.units,), (neurons,))
        self.built = True

    def harmonium(self, dtype=None):
        """Return the machine as a `functions.Harmonium` over x and y."""
        biases = self.hidden_bias, self.visible_bias
        kernel = ops.cast(self.kernel, dtype or self.kernel.dtype)
        return Harmonium(DenseMaps(kernel), *self.neuron_units(), *biases)

    def call(self, inputs):
        z = self.harmonium().fields(self.sent(inputs))
        return ops.cast(BinaryUnits().mean(z), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def free_energy(self, v):
        """Return the free energy F(v) (B,) of v (B, D), in nats: p(v) = exp(-F(v)) / Z."""
        return self.free_energy_of(self.harmonium(), self.sent(v))

    def log_likelihood(self, v, log_z):
        """Return the mean of log p(v) over v (B, D) and its standard error, two floats in nats.

        `log_z` comes from `functions.enumerated_log_partition` or `annealed_partition`.
        """
        mean, error = log_likelihood(self.harmonium(), self.sent(v), log_z)
        return mean - float(self.log_scale()), error

    def decode(self, h: Tensor) -> Tensor:
        """Return the mean of v (B, D) given real numbers h (B, E) as hidden units."""
        y = h if self.hidden_offset is None else h - self.hidden_offset
        machine = self.harmonium()
        return self.received(machine.visible.mean(machine.transposed().fields(y)))

    def reconstruct(self, v: Tensor) -> Tensor:
        """Return the mean-field reconstruction (B, D) of v (B, D) from p(h | v)."""
        return self.gibbs(v, 1, seed=None)[0]

    def gibbs(self, v, steps=1, seed=0):
        """Run Gibbs chains from v.

        Args:
            v: Tensor (B, D), initial states.
            steps: int, number of Gibbs steps.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`. None is mean field.

        Returns:
            Tensors v (B, D) and h (B, E). The last v is sampled from this h.
        """
        x, y = gibbs_chain(self.harmonium(), self.sent(v), steps, seed)
        return self.received(x), y if self.hidden_offset is None else y + self.hidden_offset

    def log_variance_gradient(self, v):
        """Return the gradient (D,) of the mean log p(v) with respect to log s^2."""
        return log_variance_gradient(self.harmonium(), self.sent(v))

    def move_offsets(self, visible, hidden, coefficients=None):
        """Add `visible` (D,) to mu and `hidden` (E,) to lambda, and keep p(v, h) unchanged.

        The biases absorb the change: a grows by W d_mu, and b by W^T d_lambda.
        """
        self.hidden_bias.assign_add(ops.matmul(self.kernel, visible))
        self.visible_bias.assign_add(ops.matmul(hidden, self.kernel))
        self.visible_offset.assign_add(visible)
        self.hidden_offset.assign_add(hidden)


def binarization(binarize, machine):
    """Return `binarize`, a word or None; raise `ValueError` if it does not fit the machine."""
    if binarize is not None:
        one_of("binarize", binarize, ("stochastic", "threshold"))
        if machine.visible != "bernoulli":
            raise ValueError(
                f"`binarize` must be None where neurons are {machine.visible!r}. "
                f"Received: binarize={binarize!r}"
            )
    return binarize
