"""McNemar's exact test against enumeration."""

import itertools

import numpy as np
import pytest

from keras_capsule_poe.evaluation.ensemble import mcnemar


@pytest.mark.parametrize("this, other", [(0, 0), (1, 0), (2, 5), (6, 1), (4, 4)])
def test_the_probability_is_that_of_coins_that_fall_as_unequally(this, other):
    """Rejects a test that counts the images that both name alike, and a one-sided one."""
    right = [(True, False)] * this + [(False, True)] * other + [(True, True)] * 3 + [(False,) * 2]
    found = mcnemar(*np.array(right).T)
    throws = [sum(coins) for coins in itertools.product((0, 1), repeat=this + other)]
    gap = abs(this - other)
    expected = np.mean([abs(2 * heads - this - other) >= gap for heads in throws])
    assert (found["only_this_right"], found["only_other_right"]) == (this, other)
    assert found["p"] == pytest.approx(expected)
