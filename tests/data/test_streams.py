"""Orders that depend on their arguments alone, and streams of batches."""

from pathlib import Path

import numpy as np
import pytest

import keras_capsule_poe
from keras_capsule_poe.data import (
    DataError,
    batches,
    epoch_order,
    sequential_batches,
    steps_per_epoch,
)
from keras_capsule_poe.data.streams import AHEAD, by_class, generator, hold_out


def test_epoch_order_is_a_permutation():
    for n in [0, 1, 2, 1000]:
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


def test_epoch_order_refuses_negative_arguments():
    for arguments in [(-1, 0, 0), (1, -1, 0), (1, 0, -1)]:
        with pytest.raises(ValueError, match="at least 0. Received: n="):
            epoch_order(*arguments)


def test_held_out_parts_every_image_once():
    train, test = hold_out(np.zeros(50), 0.1, seed=0)
    assert len(test) == 5
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(50))
    assert np.array_equal(test, hold_out(np.zeros(50), 0.1, seed=0)[1])
    assert not np.array_equal(test, hold_out(np.zeros(50), 0.1, seed=1)[1])


def test_held_out_leaves_an_image_on_either_side():
    for fraction, tests in [(0.001, 1), (0.999, 2)]:
        assert [len(part) for part in hold_out(np.zeros(3), fraction, seed=0)] == [3 - tests, tests]


def test_held_out_refuses_a_single_image():
    with pytest.raises(DataError, match="at least 2 images.* Received: 1"):
        hold_out(np.zeros(1), 0.5, seed=0)


def test_each_class_is_on_either_side_and_any_stretch_has_its_share():
    for seed in range(6):
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


def test_arguments_of_a_generator_out_of_range():
    for arguments in [(-1, 0, 0, 1), (0, -1, 0, 1), (0, 0, -1, 1), (0, 0, 0, 0)]:
        with pytest.raises(ValueError, match="`purpose` at least 1. Received: seed="):
            generator(*arguments)


@pytest.fixture
def numbers():
    """Ten images, each of which tells its index."""
    return np.arange(10, dtype=np.int64)


def stream(*arguments, **keywords):
    return list(batches(*arguments, **keywords).as_numpy_iterator())


def test_epochs_follow_one_another_without_mixing(numbers):
    got = stream(numbers, batch_size=4, seed=7, epochs=2)
    assert [len(batch) for batch in got] == [4, 4, 2, 4, 4, 2]
    for epoch in range(2):
        visited = np.concatenate(got[3 * epoch : 3 * epoch + 3])
        assert np.array_equal(visited, epoch_order(10, 7, epoch))
    assert not np.array_equal(np.concatenate(got[:3]), np.concatenate(got[3:]))


@pytest.mark.some(5)
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("epoch", "step"), [(0, 0), (0, 2), (1, 1), (1, 3), (3, 4), (4, 0)])
def test_a_stream_resumed_inside_an_epoch_is_exactly_the_rest(numbers, epoch, step, shuffle):
    options = {"batch_size": 3, "seed": 1, "epochs": 4, "shuffle": shuffle}
    full = stream(numbers, **options)
    rest = stream(numbers, **options, first_epoch=epoch, first_step=step)
    assert len(rest) == 16 - 4 * epoch - step
    assert len(batches(numbers, **options, first_epoch=epoch, first_step=step)) == len(rest)
    for a, b in zip(full[4 * epoch + step :], rest, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    "wrong", [{"first_step": -1}, {"first_step": 5}, {"first_step": 1, "first_epoch": 2}]
)
def test_steps_that_are_not_there_are_refused(numbers, wrong):
    with pytest.raises(ValueError, match="`first_step` must be .* Received: first_step="):
        batches(numbers, batch_size=3, seed=0, epochs=2, **wrong)


def test_the_number_of_batches_is_known_beforehand(numbers):
    assert len(batches(numbers, batch_size=4, seed=0, first_epoch=1, epochs=3)) == 6
    assert len(batches(numbers, batch_size=4, seed=0, first_epoch=3, epochs=3)) == 0
    assert [steps_per_epoch(10, size) for size in (1, 5, 9, 10, 11)] == [10, 2, 2, 1, 1]


def test_the_same_dataset_can_be_walked_twice(numbers):
    dataset = batches(numbers, batch_size=4, seed=0)
    first, second = (list(dataset.as_numpy_iterator()) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_bytes_become_floats_in_0_1_exactly():
    images = np.arange(256, dtype=np.uint8).reshape(4, 8, 8, 1)
    (got,) = stream(images, batch_size=4, seed=0, shuffle=False)
    assert got.dtype == np.float32
    assert np.array_equal(got, images.astype(np.float32) / np.float32(255))
    assert got.max() == 1.0
    assert np.array_equal(np.rint(got * 255).astype(np.uint8), images)


def test_half_floats_become_floats_exactly_and_other_dtypes_stay():
    features = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float16)
    labels = np.arange(6, dtype=np.int64)
    (got,) = stream((features, labels), batch_size=6, seed=2)
    order = epoch_order(6, 2, 0)
    assert got[0].dtype == np.float32
    assert np.array_equal(got[0], features[order].astype(np.float32))
    assert got[1].dtype == np.int64
    assert np.array_equal(got[1], order)


def test_a_tuple_of_one_stays_a_tuple(numbers):
    (got,) = stream((numbers,), batch_size=10, seed=0)
    assert isinstance(got, tuple)
    assert len(got) == 1


def test_the_batch_dimension_stays_open(numbers):
    assert batches(np.zeros((3, 20, 20, 1), np.uint8), batch_size=2, seed=0).element_spec.shape == (
        None,
        20,
        20,
        1,
    )


def test_a_memory_mapped_file_is_streamed_and_not_read_as_a_whole(tmp_path):
    path = tmp_path / "features.bin"
    # A sparse file of 64 GiB: any copy of the whole would fail or be noticed.
    shape = (2**20, 2**15)
    with open(path, "wb") as file:
        file.truncate(2 * shape[0] * shape[1])
    written = np.memmap(path, np.float16, "r+", shape=shape)
    visited = epoch_order(shape[0], 0, 0)[:2]
    written[visited, 0] = [0.5, -2.0]
    array = np.memmap(path, np.float16, "r", shape=shape)
    first = next(iter(batches(array, batch_size=2, seed=0))).numpy()
    assert first.shape == (2, shape[1])
    assert first[:, 0].tolist() == [0.5, -2.0]


def test_sequential_batches_go_once_and_in_order(numbers):
    got = list(sequential_batches(numbers, 4).as_numpy_iterator())
    assert [batch.tolist() for batch in got] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize(
    ("arrays", "received"),
    [
        ((), r"\[\]"),
        (np.zeros((0, 3)), r"\[0\]"),
        ((np.zeros(3), np.zeros(4)), r"\[3, 4\]"),
    ],
)
def test_arrays_that_do_not_match_are_refused(arrays, received):
    with pytest.raises(ValueError, match=f"same number of images.* Received: {received}"):
        batches(arrays, batch_size=2, seed=0)


def test_numbers_out_of_range_are_refused(numbers):
    for wrong in [{"batch_size": 0}, {"seed": -1}, {"first_epoch": -1}, {"first_epoch": 2}]:
        with pytest.raises(ValueError, match="Received: batch_size="):
            batches(numbers, **{"batch_size": 2, "seed": 0, "epochs": 1} | wrong)


def test_tf_data_tunes_nothing(numbers):
    """Its thread sleeps for up to a minute, and the end of a stream waits for it."""
    streams = [batches(numbers, batch_size=4, seed=0), sequential_batches(numbers, 4)]
    streams += [stream.map(lambda x: 2 * x, AHEAD).prefetch(1) for stream in streams]
    for stream in streams:
        assert stream.options().autotune.enabled is False


def test_no_source_asks_tf_data_to_tune():
    package = Path(keras_capsule_poe.__file__).parent
    for path in package.rglob("*.py"):
        assert "AUTOTUNE" not in path.read_text(), path
