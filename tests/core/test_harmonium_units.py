"""Units of harmoniums: against quadrature, and at values where formulas cancel or overflow."""

import numpy as np
import pytest

from keras_capsule_poe.functions import (
    BinaryUnits,
    BlockMaps,
    CentredUnits,
    EinsumMaps,
    GaussianUnits,
    Harmonium,
    TemperedUnits,
    UnitIntervalUnits,
    gibbs_step,
)

UNIT = UnitIntervalUnits()
Z = np.array([0.0, 1e-12, 1e-3, 0.29, 0.3, 0.31, 1.0, 5.0, 30.0])
Z = np.concatenate([-Z[::-1], Z])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
X, DX = (NODES + 1) / 2, WEIGHTS / 2


def test_unit_interval_against_quadrature():
    density = DX * np.exp(Z[:, None] * X)
    # 80 nodes are exact for exp(30 x) to rounding; sums of positive terms.
    np.testing.assert_allclose(
        UNIT.free_energy(Z[:, None]), -np.log(density.sum(axis=1)), rtol=0, atol=1e-13
    )
    np.testing.assert_allclose(UNIT.mean(Z), density @ X / density.sum(axis=1), rtol=1e-13)


def test_unit_interval_is_finite_and_right_in_float32():
    z = np.array([-1e30, -1e4, -50, -0.3, -1e-20, 0, 1e-20, 1e-4, 0.3, 50, 1e4, 1e30], "float32")
    mean, energy = np.asarray(UNIT.mean(z)), np.asarray(UNIT.free_energy(z[:, None]))
    assert np.isfinite(mean).all() and np.isfinite(energy).all()
    # Single precision of numbers of order one; mean(-z) = 1 - mean(z).
    np.testing.assert_allclose(mean, np.asarray(UNIT.mean(z.astype("float64"))), atol=3e-7)
    np.testing.assert_allclose(mean + np.asarray(UNIT.mean(-z)), 1, atol=3e-7)
    drawn = np.asarray(UNIT.sample(np.repeat(z[None], 1000, axis=0), seed=0))
    assert (drawn >= 0).all() and (drawn <= 1).all()


def test_unit_interval_draws_follow_their_distribution():
    n = 20_000
    for seed, z in enumerate((-7.0, -1e-9, 0.0, 0.5, 7.0)):
        drawn = np.sort(np.asarray(UNIT.sample(np.full(n, z), seed=seed)))
        expected = np.expm1(z * drawn) / np.expm1(z) if abs(z) > 1e-6 else drawn
        largest = np.abs(expected - (np.arange(n) + 0.5) / n).max()
        # Kolmogorov's statistic exceeds 1.95/sqrt(n) once in a thousand.
        assert largest < 1.95 / np.sqrt(n)
        wrong = np.expm1((z + 0.5) * drawn) / np.expm1(z + 0.5)
        assert np.abs(wrong - (np.arange(n) + 0.5) / n).max() > 1.95 / np.sqrt(n)


def test_field_is_the_inverse_of_the_mean():
    mean = np.array([1e-3, 0.1, 0.5, 0.77, 0.999])
    np.testing.assert_allclose(UNIT.mean(UNIT.field(mean)), mean, rtol=1e-9)


FAMILY = [
    BinaryUnits(),
    GaussianUnits(),
    UNIT,
    CentredUnits(BinaryUnits(), 0.3),
    CentredUnits(GaussianUnits(), np.array([0.3, -1.0, 2.0])),
    TemperedUnits(UNIT, 0.4, base=0.7),
    TemperedUnits(CentredUnits(BinaryUnits(), 0.3), 0.4, base=-0.7),
]


@pytest.mark.parametrize("units", FAMILY, ids=range(len(FAMILY)))
def test_the_pull_is_the_slope_of_the_free_energy(units):
    z, h = np.random.default_rng(0).normal(size=(6, 3)), 1e-5
    score = np.asarray(units.score(z))
    for e in range(3):
        move = h * np.eye(3)[e]
        slope = np.asarray(units.free_energy(z - move) - units.free_energy(z + move)) / (2 * h)
        np.testing.assert_allclose(score[:, e], slope, atol=1e-9)  # h^2 and rounding over h


@pytest.mark.parametrize("units", FAMILY, ids=range(len(FAMILY)))
def test_draws_have_the_mean(units):
    z = np.array([-2.0, 0.1, 1.5])
    drawn = np.asarray(units.sample(np.repeat(z[None], 20_000, axis=0), seed=1))
    # 20,000 numbers of variance one or less: a standard error of 0.007.
    np.testing.assert_allclose(drawn.mean(axis=0), units.mean(z), atol=0.03)


def quadrature(units):
    """-log of the sum or integral of exp(-energy), for one neuron."""
    if isinstance(units, BinaryUnits):
        x, log_dx = np.array([0.0, 1.0]), np.zeros(2)
    elif isinstance(units, GaussianUnits):
        x = np.arange(-15, 15, 0.2)
        log_dx = np.full(len(x), np.log(0.2))
    else:
        x, log_dx = X, np.log(DX)
    return x, lambda energy: -np.log(np.exp(log_dx - energy).sum())


@pytest.mark.parametrize("units", FAMILY[:3], ids=["binary", "gaussian", "unit"])
@pytest.mark.parametrize("wrapped", ["plain", "centred", "tempered", "both"])
def test_the_free_energy_is_the_integral_over_states(units, wrapped):
    x, integrate = quadrature(units)
    shift = 0.0
    if wrapped in ("centred", "both"):
        units, shift = CentredUnits(units, 0.3), 0.3
    if wrapped in ("tempered", "both"):
        units = TemperedUnits(units, 0.4, base=0.7)
    for z in (-2.0, 0.0, 1.3):
        z = np.array([z])
        found = integrate(np.asarray(units.energy(x[:, None] - shift, z)))
        # Sums of a hundred positive terms.
        assert found == pytest.approx(float(units.free_energy(z)), abs=1e-12)


def test_mutants():
    """Wrong formulas that the checks above tell apart."""
    density = DX * np.exp(Z[:, None] * X)
    mean = density @ X / density.sum(axis=1)
    assert np.abs(1 / (1 + np.exp(-Z)) - mean).max() > 0.05  # a sigmoid
    z = Z[np.abs(Z) > 0]
    naive = 1 / (1 - np.exp(-z)) - 1 / z  # cancels near zero
    assert np.abs(naive - mean[np.abs(Z) > 0]).max() > 1e-6
    h = 1e-5
    uncentred = CentredUnits(BinaryUnits(), 0.3)
    uncentred.score = BinaryUnits().score  # the offset forgotten
    slope = float(uncentred.free_energy(np.array([-h])) - uncentred.free_energy(np.array([h])))
    assert abs(float(uncentred.score(np.zeros(1))[0]) - slope / (2 * h)) > 0.1


def test_tempered_capsules_over_blocks_are_einsums():
    """Rejects a base, of a number for each unit, that is added to blocks as it is."""
    random = np.random.default_rng(0)
    kernel, c = random.normal(size=(6, 5, 3, 4)), random.uniform(0.3, 1.5, size=(6, 5))
    base, x = random.normal(size=(6, 4)), random.normal(size=(2, 6, 4))

    def walked(maps):
        machine = Harmonium(maps(kernel), coefficients=c).tempered(0.3, base)
        return [np.asarray(side) for side in gibbs_step(machine, x, seed=None)]

    for blocks, einsum in zip(walked(BlockMaps), walked(EinsumMaps), strict=True):
        # Sums of 24 products in float64, in another order.
        np.testing.assert_allclose(blocks, einsum, rtol=1e-12)
