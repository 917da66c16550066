"""What layers of hidden neurons over visible ones share: biases, a centre and deviations."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.harmonium_units import CentredUnits, UnitIntervalUnits
from keras_capsule_poe.functions.units import BinaryUnits, GaussianUnits

VISIBLE = {"bernoulli": BinaryUnits, "gaussian": GaussianUnits, "unit": UnitIntervalUnits}


class Neurons:
    """Hidden neurons in {0, 1} over visible ones of a kind of `VISIBLE`.

    To be mixed into a `keras.layers.Layer` with the attributes `visible`, `centering` and
    `learn_variance`. Visible neurons v send v/s - mu, where s are the standard deviations of
    Gaussian ones, and hidden neurons h - lambda; without centring mu = lambda = 0.
    """

    def add_neurons(self, hidden_shape, visible_shape, hidden_bias="zeros"):
        """Adds biases, and centres and variances where there are any, to the weights."""
        # The sums of an energy are taken in 32 bits at least.
        options = {"dtype": self.variable_dtype, "autocast": False}
        self.hidden_bias = self.add_weight(hidden_shape, hidden_bias, name="hidden_bias", **options)
        self.visible_bias = self.add_weight(visible_shape, "zeros", name="visible_bias", **options)
        self.hidden_offset = self.visible_offset = self.log_variance = None
        if self.centering:
            half = keras.initializers.Constant(0.5)
            middle = "zeros" if self.visible == "gaussian" else half
            options["trainable"] = False
            self.hidden_offset = self.add_weight(
                hidden_shape, half, name="hidden_offset", **options
            )
            self.visible_offset = self.add_weight(
                visible_shape, middle, name="visible_offset", **options
            )
        if self.visible == "gaussian":
            options["trainable"] = self.learn_variance
            self.log_variance = self.add_weight(
                visible_shape, "zeros", name="log_variance", **options
            )

    def adapt(self, data):
        """Sets the visible biases to what models the data without W, and the centre and s^2.

        Args:
            data: Array (N, ...), v.
        """
        data = np.asarray(data, "float64")
        if not self.built:
            self.build((None, *data.shape[1:]))
        if self.visible == "gaussian":
            # A constant column has no variance; it gets a thousandth of the others'.
            variance = np.maximum(data.var(axis=0), 1e-3 * data.var(axis=0).mean() + 1e-12)
            self.log_variance.assign(np.log(variance))
        bias, mean = self.independent(data)
        self.visible_bias.assign(bias)
        if self.centering:
            self.visible_offset.assign(mean)

    def independent(self, data):
        """Visible biases and means, two arrays, of `standardised` data (N, ...) without W."""
        mean = np.asarray(data).mean(axis=0, dtype="float64")
        if self.visible == "gaussian":
            mean = mean / np.exp(ops.convert_to_numpy(self.log_variance).astype("float64") / 2)
            return mean, mean
        # As if each neuron had been seen once more in either state.
        mean = (len(data) * mean + 1) / (len(data) + 2)
        is_binary = self.visible == "bernoulli"
        return np.log(mean / (1 - mean)) if is_binary else UnitIntervalUnits().field(mean), mean

    def bias_of(self, z):
        """The hidden bias as numbers of the type of what it is added to."""
        return ops.cast(self.hidden_bias, z.dtype)

    def neuron_units(self):
        """Units of the hidden and of the visible neurons, centred or not."""
        hidden, visible = BinaryUnits(), VISIBLE[self.visible]()
        if self.centering:
            hidden = CentredUnits(hidden, self.hidden_offset)
            visible = CentredUnits(visible, self.visible_offset)
        return hidden, visible

    def log_scale(self):
        """log of the product of all s, a scalar, or zero: what a density of v/s has to lose."""
        return 0.0 if self.log_variance is None else ops.sum(self.log_variance) / 2

    def sent(self, v):
        """What visible neurons v send: v/s, less the centre."""
        x = self.standardised(v)
        return x if self.visible_offset is None else x - self.visible_offset

    def received(self, x):
        """The neurons v that send x."""
        x = x if self.visible_offset is None else x + self.visible_offset
        return x if self.log_variance is None else x * ops.exp(self.log_variance / 2)

    def standardised(self, v):
        """v/s.

        Raises:
            ValueError: If v are not the visible neurons of the layer.
        """
        v, neurons = ops.cast(v, self.variable_dtype), tuple(self.visible_bias.shape)
        # One neuron would stand for all.
        if tuple(v.shape[-len(neurons) :]) != neurons:
            raise ValueError(
                f"`v` must have shape (..., {', '.join(map(str, neurons))}), the visible neurons. "
                f"Received: shape {tuple(v.shape)}"
            )
        return v if self.log_variance is None else v * ops.exp(-self.log_variance / 2)
