"""Tables of all states and their moments, against sums over the states one by one.

Wrong versions that these tests reject, and `test_mutants` runs: rows and columns exchanged,
E[h] E[h]^T for E[h h^T], and the quadratic term twice.
"""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from keras_capsule_poe.core.enumeration import binary_states, state_moments, state_table


def laws(units, groups=3, seed=0):
    random = np.random.default_rng(seed)
    w = random.normal(size=(groups, units, units + 2))
    return w @ w.transpose(0, 2, 1), random.normal(size=(groups, units))


def one_by_one(gram, field):
    """States (2^E, E), the first unit the fastest, and -F of each, (G, 2^E)."""
    h = np.array(list(itertools.product((0.0, 1.0), repeat=field.shape[-1])))[:, ::-1]
    minus_f = [[y @ f + y @ g @ y / 2 for y in h] for g, f in zip(gram, field)]
    return h, np.array(minus_f)


def check_moments(table, moments, gram, field):
    h, minus_f = one_by_one(gram, field)
    # Sums of a few numbers of order ten in 64 bits.
    np.testing.assert_allclose(np.reshape(table, minus_f.shape), minus_f, atol=1e-12)
    p = np.exp(minus_f - logsumexp(minus_f, axis=1, keepdims=True))
    np.testing.assert_allclose(moments.log_z, logsumexp(minus_f, axis=1), atol=1e-12)
    np.testing.assert_allclose(moments.mean, p @ h, atol=1e-12)
    np.testing.assert_allclose(moments.second, np.einsum("gs,se,sf->gef", p, h, h), atol=1e-12)


@pytest.mark.parametrize("units", [1, 2, 3, 6, 7])
def test_tables_and_moments(units):
    gram, field = laws(units)
    table = state_table(gram, field)
    check_moments(np.asarray(table), state_moments(table), gram, field)


def test_states_are_in_the_order_of_their_numbers():
    h, _ = one_by_one(*laws(5))
    np.testing.assert_array_equal(binary_states(np.arange(32), 5), h)


def test_large_numbers_do_not_overflow():
    gram, field = laws(4)
    moments = state_moments(state_table(1e4 * gram, field).numpy().astype("float32"))
    assert np.isfinite(np.asarray(moments.log_z)).all()
    assert np.isfinite(np.asarray(moments.second)).all()


def test_more_than_can_be_enumerated_is_refused():
    with pytest.raises(ValueError, match="At most 20 units"):
        state_table(np.zeros((1, 21, 21)), np.zeros((1, 21)))


@pytest.mark.parametrize("mutant", ["transposed", "independent", "doubled"])
def test_mutants(mutant):
    gram, field = laws(4)
    table = np.asarray(state_table((1 + (mutant == "doubled")) * gram, field))
    if mutant == "transposed":
        table = table.transpose(0, 2, 1)
    moments = state_moments(table)
    if mutant == "independent":
        mean = np.asarray(moments.mean)
        moments = moments._replace(second=mean[:, :, None] * mean[:, None])
    with pytest.raises(AssertionError):
        check_moments(table, moments, gram, field)
