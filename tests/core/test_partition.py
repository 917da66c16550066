"""The partition function against sums written out state by state, and a closed form."""

import itertools

import numpy as np
import pytest
from theory.partition import annealed_log_partition, exact_log_partition

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


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(3))
def test_annealing_finds_the_partition_function(seed):
    estimate, error = annealed_log_partition(*model(seed), seed=seed)
    # Four standard errors; and 1000 weights that spread less than their mean have 0.03 at most.
    assert abs(estimate - brute_force(*model(seed))) < min(4 * error, 0.1)
    assert 0 < error < 0.03


def test_the_standard_error_is_the_spread_of_estimates():
    found = [annealed_log_partition(*model(), chains=50, temperatures=5, seed=s) for s in range(60)]
    estimates, errors = np.transpose(found)
    # A deviation of 60 estimates is known to about 10%; three of those.
    assert errors.mean() == pytest.approx(estimates.std(ddof=1), rel=0.3)
    # The log of an unbiased estimate is about half its variance too low.
    bias = estimates.mean() + np.mean(errors**2) / 2 - brute_force(*model())
    assert abs(bias) < 4 * errors.mean() / np.sqrt(60)


def test_annealing_beats_importance_sampling():
    """On a model of few likely states; one temperature is importance sampling."""
    peaked = model(scale=20)
    _, plain = annealed_log_partition(*peaked, temperatures=1)
    estimate, annealed = annealed_log_partition(*peaked)
    assert annealed < plain / 3
    assert abs(estimate - brute_force(*peaked)) < 4 * annealed


def test_without_weights_all_states_are_alike():
    kernel, coefficients, values = model()
    estimate, error = annealed_log_partition(0 * kernel, coefficients, values, chains=10)
    # Equal weights: nothing is left to chance, only rounding.
    assert estimate == pytest.approx(I * np.log(S), abs=1e-12) and error < 1e-12
    assert exact_log_partition(0 * kernel, coefficients, values) == pytest.approx(I * np.log(S))


def test_estimates_follow_the_seed():
    one, same, other = (annealed_log_partition(*model(), chains=20, seed=s) for s in (0, 0, 1))
    assert one == same and one != other


def test_what_cannot_be_computed_is_refused():
    kernel, coefficients, values = model()
    with pytest.raises(ValueError, match="Received: shapes"):
        exact_log_partition(kernel, coefficients.T, values)
    with pytest.raises(ValueError, match="Received: shapes"):
        annealed_log_partition(kernel, coefficients, values[:, :2])
    with pytest.raises(ValueError, match="annealed_log_partition"):
        exact_log_partition(np.zeros((9, 1, 1, 3)), np.ones((9, 1)), values)
    with pytest.raises(ValueError, match="temperatures=0"):
        annealed_log_partition(kernel, coefficients, values, temperatures=0)
