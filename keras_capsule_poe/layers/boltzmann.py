"""Restricted Boltzmann machine with Bernoulli, Gaussian or unit-interval visible units."""

import keras
from keras import ops

from keras_capsule_poe.functions.checks import one_of, whole_number
from keras_capsule_poe.functions.divergence import contrastive_divergence
from keras_capsule_poe.functions.harmonium import Harmonium, gibbs_chain, log_variance_gradient
from keras_capsule_poe.functions.harmonium_partition import log_likelihood
from keras_capsule_poe.functions.maps import DenseMaps
from keras_capsule_poe.functions.units import BinaryUnits
from keras_capsule_poe.layers.neurons import VISIBLE, Neurons


@keras.saving.register_keras_serializable("keras_capsule_poe")
class RestrictedBoltzmannMachine(Neurons, keras.layers.Layer):
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
        units,
        visible="bernoulli",
        centering=True,
        learn_variance=True,
        kernel_initializer=None,
        **kwargs,
    ):
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
        return self.free_energy_of(self.sent(v))

    def free_energy_of(self, x, fields=None):
        """Return F (B,) from x = `sent(v)`. `fields` are the hidden pre-activations, if known."""
        energy = self.harmonium().free_energy(x, fields)
        return energy if self.log_variance is None else energy + ops.sum(self.log_variance) / 2

    def log_likelihood(self, v, log_z):
        """Return the mean of log p(v) over v (B, D) and its standard error, two floats in nats.

        `log_z` comes from `functions.enumerated_log_partition` or `annealed_partition`.
        """
        mean, error = log_likelihood(self.harmonium(), self.sent(v), log_z)
        log_s = 0.0 if self.log_variance is None else float(ops.sum(self.log_variance)) / 2
        return mean - log_s, error

    def hidden_free_energy(self, h):
        """Return the free energy F(h) (B,) of hidden units h (B, E) with v summed out, in nats."""
        h = ops.cast(h, self.variable_dtype)
        h = h if self.hidden_offset is None else h - self.hidden_offset
        return self.harmonium().transposed().free_energy(h)

    def decode(self, h):
        """Return the mean of v (B, D) given real numbers h (B, E) as hidden units."""
        y = h if self.hidden_offset is None else h - self.hidden_offset
        machine = self.harmonium()
        return self.received(machine.visible.mean(machine.transposed().fields(y)))

    def reconstruct(self, v):
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

    def contrastive_divergence(self, v, **options):
        """Return the `functions.Divergence` of data v (B, D).

        The options are those of `functions.contrastive_divergence`. Persistent chains are in the
        coordinates of `sent`, as its `reconstruction` returns them.
        """
        machine = self.harmonium()
        return contrastive_divergence(
            machine.maps,
            self.sent(v),
            hidden=machine.hidden,
            visible=machine.visible,
            hidden_bias=machine.hidden_bias,
            visible_bias=machine.visible_bias,
            **options,
        )

    def log_variance_gradient(self, v):
        """Return the gradient (D,) of the mean log p(v) with respect to log s^2."""
        return log_variance_gradient(self.harmonium(), self.sent(v))

    def move_offsets(self, visible, hidden):
        """Add `visible` (D,) to mu and `hidden` (E,) to lambda, and keep p(v, h) unchanged.

        The biases absorb the change: a grows by W d_mu, and b by W^T d_lambda.
        """
        self.hidden_bias.assign_add(ops.matmul(self.kernel, visible))
        self.visible_bias.assign_add(ops.matmul(hidden, self.kernel))
        self.visible_offset.assign_add(visible)
        self.hidden_offset.assign_add(hidden)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "visible": self.visible,
            "centering": self.centering,
            "learn_variance": self.learn_variance,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
