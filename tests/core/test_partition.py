"""The partition function against sums written out state by state, and a closed form."""

import itertools

import numpy as np
import pytest
from theory.partition import exact_log_partition

from keras_capsule_poe.functions import BinaryUnits

I, J, E, D, S = 4, 3, 2, 3, 5


def model(seed=0, scale=1.5):
    """Maps (I, J, E, D), coefficients (I, J) and values (S, D)."""
    random = np.random.default_rng(seed)
    kernel = scale * random.normal(size=(I, J, E, D))
    return kernel, random.uniform(0.3, 1.5, size=(I, J)), random.normal(size=(S, D))


def brute_force(kernel, coefficients, values, expert=lambda z: 1 + z @ z):
    """log of the sum over states of prod_j (1 + |sum_i c_ij W_ij v_i|^2), term by term."""
    total = 0.0
    for state in itertools.product(values, repeat=I):
        weight = 1.0
        for j in range(J):
            z = sum(coefficients[i, j] * kernel[i, j] @ v for i, v in enumerate(state))
            weight *= expert(z)
        total += weight
    return np.log(total)


def test_enumeration_is_the_sum_over_all_states():
    # 625 positive terms in float64.
    assert exact_log_partition(*model()) == pytest.approx(brute_force(*model()), rel=1e-12)


def test_enumeration_takes_other_units():
    found = exact_log_partition(*model(), units=BinaryUnits())
    expected = brute_force(*model(), expert=lambda z: np.prod(1 + np.exp(z)))
    assert found == pytest.approx(expected, rel=1e-12)


def test_enumeration_of_one_expert_is_a_closed_form():
    """For values of mean zero, Z = S^I (1 + sum_i c_i^2 mean_v |W_i v|^2): no cross terms."""
    kernel, coefficients, values = model()
    kernel, coefficients, values = kernel[:, :1], coefficients[:, :1], values - values.mean(axis=0)
    squares = np.sum(np.einsum("ied,sd->ise", kernel[:, 0], values) ** 2, axis=-1).mean(axis=-1)
    expected = I * np.log(S) + np.log1p(coefficients[:, 0] ** 2 @ squares)
    found = exact_log_partition(kernel, coefficients, values)
    assert found == pytest.approx(expected, rel=1e-12)


def test_without_weights_all_states_are_alike():
    kernel, coefficients, values = model()
    assert exact_log_partition(0 * kernel, coefficients, values) == pytest.approx(I * np.log(S))


def test_what_cannot_be_computed_is_refused():
    kernel, coefficients, values = model()
    with pytest.raises(ValueError, match="Received: shapes"):
        exact_log_partition(kernel, coefficients.T, values)
    with pytest.raises(ValueError, match="annealed_importance"):
        exact_log_partition(np.zeros((9, 1, 1, 3)), np.ones((9, 1)), values)
