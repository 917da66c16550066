"""A restricted Boltzmann machine: binary hidden neurons over binary, real or grey visible ones."""

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
    """Hidden neurons h in {0, 1} over visible neurons v, without connections within a side.

    -E(v, h) = (v - mu).b + (h - lambda).(a + W (v - mu)), less base energies of v: none for
    Bernoulli and unit-interval neurons; Gaussian ones have unit variance after division by s,
    the standard deviations that the machine learns too. Without centring mu = lambda = 0.

    Args:
        units: int, E, hidden neurons.
        visible: `"bernoulli"` in {0, 1}, `"gaussian"`, or `"unit"` in [0, 1].
        centering: bool, whether the machine is centred, which training then is not slowed by
            means far from zero.
        learn_variance: bool, whether s^2 of Gaussian neurons is trained, or stays as
            `adapt` sets it.
        kernel_initializer: Of W.
        **kwargs: Base layer arguments.

    Call arguments:
        inputs: Tensor (B, D), v.

    Returns:
        Tensor (B, E), p(h = 1 | v).

    Raises:
        ValueError: If an argument or the input's shape is not as above.

    Examples:

    >>> machine = RestrictedBoltzmannMachine(3)
    >>> v = np.array([[0.0, 1.0, 1.0, 0.0]], "float32")
    >>> machine(v).shape, machine.free_energy(v).shape
    (TensorShape([1, 3]), TensorShape([1]))
    >>> [side.shape for side in machine.gibbs(v, steps=5, seed=0)]
    [TensorShape([1, 4]), TensorShape([1, 3])]

    Reference:

    - [Smolensky, 1986](https://stanford.edu/~jlmcc/papers/PDP/Volume%201/Chap6_PDP86.pdf)
    - [Hinton, 2012](https://doi.org/10.1007/978-3-642-35289-8_32), practical guide
    - [Melchior et al., 2016](https://jmlr.org/papers/v17/14-237.html), centring
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
        """The machine as `functions.Harmonium`, of `standardised` neurons less their centre."""
        biases = self.hidden_bias, self.visible_bias
        kernel = ops.cast(self.kernel, dtype or self.kernel.dtype)
        return Harmonium(DenseMaps(kernel), *self.neuron_units(), *biases)

    def call(self, inputs):
        z = self.harmonium().fields(self.sent(inputs))
        return ops.cast(BinaryUnits().mean(z), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def free_energy(self, v):
        """F(v), h summed out, nats: p(v) = exp(-F(v))/Z, a density where v is real.

        Args:
            v: Tensor (B, D).

        Returns:
            Tensor (B,).
        """
        return self.free_energy_of(self.sent(v))

    def free_energy_of(self, x, fields=None):
        """F of the neurons v that send x; `fields`: what the hidden ones receive, if known."""
        energy = self.harmonium().free_energy(x, fields)
        return energy if self.log_variance is None else energy + ops.sum(self.log_variance) / 2

    def log_likelihood(self, v, log_z):
        """Mean log p(v) over images, and its standard error over them, nats.

        Args:
            v: Array (B, D).
            log_z: float, of `functions.enumerated_log_partition` or `annealed_partition`.

        Returns:
            float mean, float standard error.
        """
        mean, error = log_likelihood(self.harmonium(), self.sent(v), log_z)
        log_s = 0.0 if self.log_variance is None else float(ops.sum(self.log_variance)) / 2
        return mean - log_s, error

    def hidden_free_energy(self, h):
        """F(h), v summed out, nats.

        Args:
            h: Tensor (B, E).

        Returns:
            Tensor (B,).
        """
        h = ops.cast(h, self.variable_dtype)
        h = h if self.hidden_offset is None else h - self.hidden_offset
        return self.harmonium().transposed().free_energy(h)

    def decode(self, h):
        """The mean of v given hidden neurons h (B, E), of any values: (B, D)."""
        y = h if self.hidden_offset is None else h - self.hidden_offset
        machine = self.harmonium()
        return self.received(machine.visible.mean(machine.transposed().fields(y)))

    def reconstruct(self, v):
        """The mean of v given p(h | v), mean field.

        Args:
            v: Tensor (B, D).

        Returns:
            Tensor (B, D).
        """
        return self.gibbs(v, 1, seed=None)[0]

    def gibbs(self, v, steps=1, seed=0):
        """Visible and hidden neurons after some steps of Gibbs sampling.

        Args:
            v: Tensor (B, D), where the chains start.
            steps: int.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`; `None`: mean field.

        Returns:
            Tensors (B, D), v, and (B, E), the h that it was drawn from.
        """
        x, y = gibbs_chain(self.harmonium(), self.sent(v), steps, seed)
        return self.received(x), y if self.hidden_offset is None else y + self.hidden_offset

    def contrastive_divergence(self, v, **options):
        """Contrastive divergence of the machine's parameters.

        Args:
            v: Tensor (B, D), the data.
            **options: `steps`, `seed`, `chains`, see `functions.contrastive_divergence`; the
                chains are as its `reconstruction` left them, see `sent`.

        Returns:
            `functions.Divergence`.
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
        """Gradient of the mean log p(v) in log s^2, (D,), the other parameters held."""
        return log_variance_gradient(self.harmonium(), self.sent(v))

    def move_offsets(self, visible, hidden):
        """Moves the centre, and the biases so that p(v, h) stays what it is.

        -E is the same function, less a constant, if a grows by W d_mu and b by W^T d_lambda.

        Args:
            visible: Tensor (D,), by how much mu moves.
            hidden: Tensor (E,), by how much lambda moves.
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
