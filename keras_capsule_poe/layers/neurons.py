"""Mixin for layers of binary hidden units: biases, offsets and standard deviations."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.harmonium_units import CentredUnits, UnitIntervalUnits
from keras_capsule_poe.functions.units import BinaryUnits, GaussianUnits

VISIBLE = {"bernoulli": BinaryUnits, "gaussian": GaussianUnits, "unit": UnitIntervalUnits}


class Neurons:
    """Mixin for Keras layers with the attributes `visible`, `centering` and `learn_variance`."""

    def add_neurons(self, hidden_shape, visible_shape, hidden_bias="zeros"):
        """Add the bias weights, and offsets and log-variances if they are used."""
        # No autocast: energies are summed in float32 at least.
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
        """Fit the visible biases, the offset mu and s^2 to data v (N, ...), assuming W = 0."""
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

    def sent(self, v):
        """Return x = v/s - mu."""
        x = self.standardised(v)
        return x if self.visible_offset is None else x - self.visible_offset

    def received(self, x):
        """Return v = s (x + mu), the inverse of `sent`."""
        x = x if self.visible_offset is None else x + self.visible_offset
        return x if self.log_variance is None else x * ops.exp(self.log_variance / 2)

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
