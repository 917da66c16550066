"""Orders: permutations that depend on their arguments alone."""

import numpy as np
import pytest

from keras_capsule_poe.data import DataError, epoch_order
from keras_capsule_poe.data.streams import by_class, generator, hold_out


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
    train, test = hold_out(np.zeros(50), 0.1, seed=0)
    assert len(test) == 5
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(50))
    assert np.array_equal(test, hold_out(np.zeros(50), 0.1, seed=0)[1])
    assert not np.array_equal(test, hold_out(np.zeros(50), 0.1, seed=1)[1])


@pytest.mark.parametrize(("fraction", "tests"), [(0.001, 1), (0.999, 2)])
def test_held_out_leaves_an_image_on_either_side(fraction, tests):
    assert [len(part) for part in hold_out(np.zeros(3), fraction, seed=0)] == [3 - tests, tests]


def test_held_out_refuses_a_single_image():
    with pytest.raises(DataError, match="at least 2 images.* Received: 1"):
        hold_out(np.zeros(1), 0.5, seed=0)


@pytest.mark.parametrize("seed", range(6))
def test_each_class_is_on_either_side_and_any_stretch_has_its_share(seed):
    labels = np.repeat([0, 1, 2, 3], [200, 100, 4, 1])
    train, test = hold_out(labels, 0.1, seed)
    assert np.bincount(labels[test], minlength=4).tolist() == [20, 10, 1, 0]
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(305))
    assert set(labels[train[-3:]]) == {0, 1, 2}
    for start in range(0, 250, 30):
        found = np.bincount(labels[train[start : start + 30]], minlength=4)
        assert abs(found[0] - 20) <= 2 and abs(found[1] - 10) <= 2


def test_an_order_by_class_depends_on_the_seed_alone():
    labels = np.arange(40) % 3
    assert np.array_equal(by_class(labels, 1), by_class(labels, 1))
    assert not np.array_equal(by_class(labels, 1), by_class(labels, 2))
    assert np.array_equal(by_class(np.zeros(9), 4), epoch_order(9, 4, 0))


def test_a_generator_depends_on_all_its_arguments_and_on_nothing_else():
    def draw(*arguments):
        return generator(*arguments).integers(2**62)

    first = draw(1, 2, 3, 4)
    np.random.default_rng(0).random(7)
    assert draw(1, 2, 3, 4) == first
    others = [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 1), (2, 1, 3, 4), (1, 2, 4, 3)]
    assert len({first, *(draw(*arguments) for arguments in others)}) == 7


def test_a_generator_has_nothing_to_do_with_an_order():
    """A purpose of zero would give the numbers that the order of the epoch is drawn from."""
    order = epoch_order(1000, seed=3, epoch=4)
    assert not np.array_equal(generator(3, 4, 0, 1).permutation(1000), order)


@pytest.mark.parametrize("arguments", [(-1, 0, 0, 1), (0, -1, 0, 1), (0, 0, -1, 1), (0, 0, 0, 0)])
def test_arguments_of_a_generator_out_of_range(arguments):
    with pytest.raises(ValueError, match="`purpose` at least 1. Received: seed="):
        generator(*arguments)
