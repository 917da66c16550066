"""Training and sampling of a Bernoulli RBM with NumPy, for small data.

A step on a small RBM takes less time than TensorFlow needs to start it. The learning rule and the
weights are those of `HarmoniumModel`.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

INITIAL_STDDEV = 0.01
OFFSET_RATE = np.float32(0.01)


class Rule(NamedTuple):
    """Settings of one step of contrastive divergence."""

    learning_rate: float
    momentum: float
    cd_steps: int
    binarize: bool


class ArrayMachine:
    """Centred Bernoulli RBM in float32 arrays, with the weights of `RestrictedBoltzmannMachine`.

    Args:
        units: int, E, number of hidden units.
        mean: Array (D,), means of the visible units, inside (0, 1).
        rng: `numpy.random.Generator`, which draws the initial weights.
    """

    def __init__(self, units: int, mean: Any, rng: Any) -> None:
        mean = np.asarray(mean, "float64")
        self.kernel = rng.standard_normal((units, len(mean)), "float32")
        self.kernel *= np.float32(INITIAL_STDDEV)
        self.hidden_bias = np.zeros(units, "float32")
        self.visible_bias = np.log(mean / (1 - mean)).astype("float32")
        self.hidden_offset = np.full(units, 0.5, "float32")
        self.visible_offset = mean.astype("float32")
        self.velocities = [np.zeros_like(weight) for weight in self.learned]

    @property
    def learned(self):
        """Weights that follow the gradient."""
        return [self.kernel, self.hidden_bias, self.visible_bias]

    def step(self, v, rule, rng):
        """Update the weights by one step of CD-k on rows v (B, D), float32 in [0, 1]."""
        if rule.binarize:
            v = np.less(rng.random(v.shape, "float32"), v)
        ascents, visible, hidden = self.gradient(v, rule.cd_steps, rng)
        for weight, velocity, ascent in zip(self.learned, self.velocities, ascents):
            velocity *= np.float32(rule.momentum)
            velocity += np.float32(rule.learning_rate) * ascent
            weight += velocity
        self.move_offsets(OFFSET_RATE * visible, OFFSET_RATE * hidden)

    def gradient(self, v, cd_steps, rng):
        """Return the CD-k ascents of `learned`, and the centred means (D,) and (E,) of the data."""
        share = np.full(len(v), 1 / len(v), "float32")
        x = v - self.visible_offset
        p = model = self._hidden_mean(x)
        for _ in range(cd_steps):
            h = np.less(rng.random(p.shape, "float32"), model) - self.hidden_offset
            q = _sigmoid(h @ self.kernel + self.visible_bias)
            x_model = np.less(rng.random(q.shape, "float32"), q) - self.visible_offset
            model = self._hidden_mean(x_model)
        visible, hidden = share @ x, share @ p - self.hidden_offset
        # One product for both terms: scores of the data above, of the model below with a minus.
        scores = np.concatenate([p, model])
        scores -= self.hidden_offset
        scores[: len(p)] *= share[0]
        scores[len(p) :] *= -share[0]
        kernel = scores.T @ np.concatenate([x, x_model])
        ascents = kernel, share @ p - share @ model, visible - share @ x_model
        return ascents, visible, hidden

    def move_offsets(self, visible, hidden):
        """Add `visible` (D,) and `hidden` (E,) to the offsets, and keep p(v, h) unchanged."""
        self.hidden_bias += self.kernel @ visible
        self.visible_bias += hidden @ self.kernel
        self.visible_offset += visible
        self.hidden_offset += hidden

    def _hidden_mean(self, x):
        return _sigmoid(x @ self.kernel.T + self.hidden_bias)

    def error_and_probability(self, v):
        """Return the relative error of mean-field reconstructions of rows v, and mean p(h = 1)."""
        p = self._hidden_mean(v - self.visible_offset)
        q = _sigmoid((p - self.hidden_offset) @ self.kernel + self.visible_bias)
        return np.square(q - v).sum() / (np.square(v).sum() or 1), p.mean()

    def uncentred_biases(self):
        """Return biases (E,) and (D,) of the same RBM without offsets."""
        hidden = self.hidden_bias - self.kernel @ self.visible_offset
        return hidden, self.visible_bias - self.hidden_offset @ self.kernel

    def sample(self, v, steps, rng, known=None):
        """Return visible units (N, D) after Gibbs steps from v; `known` has NaN where free."""
        is_known = None if known is None else ~np.isnan(known)
        x = np.array(v, "float32")
        for _ in range(steps):
            if known is not None:
                x[is_known] = known[is_known]
            p = self._hidden_mean(x - self.visible_offset)
            h = np.less(rng.random(p.shape, "float32"), p) - self.hidden_offset
            q = _sigmoid(h @ self.kernel + self.visible_bias)
            x = np.less(rng.random(q.shape, "float32"), q).astype("float32")
        if known is not None:
            x[is_known] = known[is_known]
        return x

    def to_model(self, **options):
        """Return a built `HarmoniumModel` with these weights."""
        from keras_capsule_poe.models.boltzmann.layers import RestrictedBoltzmannMachine
        from keras_capsule_poe.models.boltzmann.model import HarmoniumModel

        machine = RestrictedBoltzmannMachine(len(self.hidden_bias))
        model = HarmoniumModel(machine, offset_rate=float(OFFSET_RATE), **options)
        model.build((None, len(self.visible_bias)))
        for name in (
            "kernel",
            "hidden_bias",
            "visible_bias",
            "hidden_offset",
            "visible_offset",
        ):
            getattr(machine, name).assign(getattr(self, name))
        return model


def hidden_means(v, kernel, bias):
    """Return p(h = 1 | v) (N, E) of an uncentred RBM in the dtype of v (N, D)."""
    return expit(v @ kernel.T.astype(v.dtype) + bias.astype(v.dtype))


def free_energies(v, kernel, hidden_bias, visible_bias):
    """Return F(v) (N,) in nats of an uncentred RBM, in the dtype of v (N, D)."""
    z = v @ kernel.T.astype(v.dtype) + hidden_bias.astype(v.dtype)
    return -(v @ visible_bias.astype(v.dtype)) - np.logaddexp(0, z).sum(axis=1)


def _sigmoid(z):
    """Replace z by sigmoid(z)."""
    # NumPy's tanh is several times faster than its exp in float32, and does not overflow.
    z *= np.float32(0.5)
    np.tanh(z, out=z)
    z += np.float32(1)
    z *= np.float32(0.5)
    return z
