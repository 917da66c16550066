"""Orders: permutations that depend on their arguments alone."""

import numpy as np
import pytest

from keras_capsule_poe.data import DataError, epoch_order
from keras_capsule_poe.data.ordering import hold_out


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_epoch_order_is_a_permutation(n):
    order = epoch_order(n, seed=3, epoch=5)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))


def test_epoch_order_depends_on_all_its_arguments_and_on_nothing_else():
    first = epoch_order(100, seed=1, epoch=2)
    np.random.default_rng(0).random(7)
    assert np.array_equal(first, epoch_order(100, seed=1, epoch=2))
    for other in (epoch_order(100, 1, 3), epoch_order(100, 2, 2), epoch_order(100, 2, 1)):
        assert not np.array_equal(first, other)


def test_every_image_comes_equally_often_to_the_front():
    fronts = [epoch_order(4, seed=0, epoch=epoch)[0] for epoch in range(2000)]
    assert np.all(np.abs(np.bincount(fronts, minlength=4) - 500) < 100)


@pytest.mark.parametrize("arguments", [(-1, 0, 0), (1, -1, 0), (1, 0, -1)])
def test_epoch_order_refuses_negative_arguments(arguments):
    with pytest.raises(ValueError, match="at least 0. Received: n="):
        epoch_order(*arguments)


def test_held_out_parts_every_image_once():
    train, test = hold_out(50, 0.1, seed=0)
    assert len(test) == 5
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(50))
    assert np.array_equal(test, hold_out(50, 0.1, seed=0)[1])
    assert not np.array_equal(test, hold_out(50, 0.1, seed=1)[1])


@pytest.mark.parametrize(("fraction", "tests"), [(0.001, 1), (0.999, 2)])
def test_held_out_leaves_an_image_on_either_side(fraction, tests):
    assert [len(part) for part in hold_out(3, fraction, seed=0)] == [3 - tests, tests]


def test_held_out_refuses_a_single_image():
    with pytest.raises(DataError, match="at least 2 images.* Received: 1"):
        hold_out(1, 0.5, seed=0)
