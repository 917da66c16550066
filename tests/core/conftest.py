"""Harmoniums small enough to enumerate, written out in NumPy."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from keras_capsule_poe.functions import (
    BinaryUnits,
    CentredUnits,
    DenseMaps,
    GaussianUnits,
    Harmonium,
    UnitIntervalUnits,
)

UNITS = {"bernoulli": BinaryUnits, "gaussian": GaussianUnits, "unit": UnitIntervalUnits}


def states(number):
    """All vectors of so many zeros and ones."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=number)))


def nodes(visible, neurons):
    """States of visible neurons (V, D), and logarithms of what each counts in a sum."""
    if visible == "bernoulli":
        line, weights = np.array([0.0, 1.0]), np.ones(2)
    elif visible == "gaussian":  # the trapezoidal rule is exact to exp(-2 pi^2/0.3^2)
        line = np.arange(-12, 12.1, 0.3)
        weights = np.full(len(line), 0.3)
    else:
        line, weights = np.polynomial.legendre.leggauss(30)
        line, weights = (line + 1) / 2, weights / 2
    v = np.array(list(itertools.product(line, repeat=neurons)))
    return v, np.log(list(itertools.product(weights, repeat=neurons))).sum(axis=1)


class Enumerated:
    """E term by term: -E = (v - mu).b + (h - lambda).(a + W (v - mu)) - base energy of v."""

    def __init__(self, visible="bernoulli", neurons=4, hidden=3, centred=False, seed=0, scale=1.0):
        random = np.random.default_rng(seed)
        self.visible = visible
        self.w = scale * random.normal(size=(hidden, neurons))
        self.a, self.b = random.normal(size=hidden), random.normal(size=neurons)
        self.mu, self.lam = (
            centred * random.uniform(0.2, 0.8, size=size) for size in (neurons, hidden)
        )
        self.centred = centred
        self.v, self.log_measure = nodes(visible, neurons)
        self.h = states(hidden)

    def energies(self, v=None):
        """E of every v and h, (V, H)."""
        v = self.v if v is None else v
        x, y = v - self.mu, self.h - self.lam
        energies = -(x @ self.b)[:, None] - (y @ self.a)[None] - x @ self.w.T @ y.T
        if self.visible == "gaussian":
            energies = energies + (v**2 + np.log(2 * np.pi)).sum(axis=1)[:, None] / 2
        return energies

    def free_energy(self, v=None):
        return -logsumexp(-self.energies(v), axis=1)

    def hidden_free_energy(self):
        return -logsumexp(self.log_measure[:, None] - self.energies(), axis=0)

    def log_partition(self):
        return logsumexp(self.log_measure - self.free_energy())

    def law(self):
        """What each v counts, p(v) times its measure."""
        return np.exp(self.log_measure - self.free_energy() - self.log_partition())

    def log_likelihood(self, data):
        return np.mean(-self.free_energy(data)) - self.log_partition()

    def draws(self, number, seed=0):
        """Samples of p(v)."""
        chosen = np.random.default_rng(seed).choice(len(self.v), number, p=self.law())
        return self.v[chosen]

    def slopes(self, data, h=1e-4):
        """Finite differences of the exact mean log p(data), of order h^4, in W, a and b."""
        found = []
        for parameter in (self.w, self.a, self.b):
            slope = np.zeros_like(parameter)
            for index in np.ndindex(parameter.shape):
                kept, values = parameter[index], []
                for k in (-2, -1, 1, 2):
                    parameter[index] = kept + k * h
                    values.append(self.log_likelihood(data))
                parameter[index] = kept
                slope[index] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
            found.append(slope)
        return found

    def sent(self, v=None):
        """What visible neurons send."""
        return (self.v if v is None else v) - self.mu

    def transition(self, ours):
        """T(v -> v') of one Gibbs step, of the library's conditionals."""

        def bernoulli(means, states):
            return np.prod(np.where(states[None] == 1, means[:, None], 1 - means[:, None]), axis=-1)

        back = ours.transposed()
        up = np.asarray(ours.hidden.mean(ours.fields(self.sent()))) + self.lam
        down = np.asarray(back.hidden.mean(back.fields(self.h - self.lam))) + self.mu
        return bernoulli(up, self.h) @ bernoulli(down, self.v)

    def harmonium(self, maps=DenseMaps):
        hidden, visible = BinaryUnits(), UNITS[self.visible]()
        if self.centred:
            hidden, visible = CentredUnits(hidden, self.lam), CentredUnits(visible, self.mu)
        return Harmonium(maps(self.w), hidden, visible, self.a, self.b)


@pytest.fixture(scope="session")
def enumerated():
    """The class `Enumerated`."""
    return Enumerated
