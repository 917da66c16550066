"""The metrics that models trained by contrastive divergence share, and stateless randomness."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.core.numerics import StatelessSeed
from keras_capsule_poe.functions import squash
from keras_capsule_poe.metrics import (
    ExpertUsage,
    OrientationConcentration,
    RelativeError,
    expert_usage,
    relative_error,
)


def test_relative_error():
    x = np.random.default_rng(0).normal(size=(4, 3, 2)).astype("float32")
    assert float(relative_error(x, x)) == 0
    assert float(relative_error(0 * x, x)) == 1
    # (1.5 - 1)^2 and (-1 - 1)^2, in float32.
    assert float(relative_error(1.5 * x, x)) == pytest.approx(0.25, rel=1e-6)
    assert float(relative_error(-x, x)) == pytest.approx(4, rel=1e-6)
    assert np.isfinite(relative_error(x, 0 * x))
    assert np.isnan(relative_error(np.nan * x, x))


def test_the_relative_error_of_small_numbers_is_as_relative():
    """Rejects a floor under the size."""
    small = np.full((1, 3), 1e-4, "float32")
    assert float(relative_error(0 * small, small)) == 1


def test_relative_error_of_all_batches():
    random = np.random.default_rng(0)
    x, made = random.normal(size=(2, 7, 3)).astype("float32")
    weights = random.uniform(size=7)
    metric, weighed = RelativeError(), RelativeError()
    for rows in (slice(0, 5), slice(5, 7)):
        metric.update_state(made[rows], x[rows])
        weighed.update_state(made[rows], x[rows], weights[rows])
    error, size = ((made - x) ** 2).sum(axis=1), (x**2).sum(axis=1)
    # float32 sums in another order.
    assert float(metric.result()) == pytest.approx(error.sum() / size.sum(), rel=1e-5)
    assert float(weighed.result()) == pytest.approx(weights @ error / (weights @ size), rel=1e-5)
    metric.reset_state()
    assert float(metric.result()) == 0


def test_concentration_of_weighed_images_and_of_none():
    metric = OrientationConcentration(1, 2)
    metric.update_state(np.zeros((0, 1, 2), "float32"))
    metric.update_state(np.array([[[1.0, 0.0]], [[-1.0, 0.0]]]), sample_weight=[1.0, 0.0])
    assert float(metric.result()) == pytest.approx(1)
    with pytest.raises(ValueError, match=r"`x` must be 1 capsules of 2 .*Received: .*\(2, 3, 2\)"):
        metric.update_state(np.ones((2, 3, 2)))


def concentration(*batches):
    _, capsules, dim = batches[0].shape
    metric = OrientationConcentration(capsules, dim)
    for batch in batches:
        metric.update_state(batch)
    return float(metric.result())


def test_concentration_of_known_orientations():
    fixed = np.broadcast_to([[0.6, 0.0], [0.0, -0.3]], (10, 2, 2)).astype("float32")
    # Any length, one direction; float32.
    lengths = np.linspace(0.1, 1, 10, dtype="float32")[:, None, None]
    assert concentration(lengths * fixed) == pytest.approx(1, abs=1e-6)
    both_ways = np.concatenate([fixed, -fixed])
    assert concentration(both_ways) == pytest.approx(0, abs=1e-6)
    # One capsule of two always the same way.
    half = both_ways.copy()
    half[:, 0] = fixed[0, 0]
    assert concentration(half) == pytest.approx(0.5, abs=1e-6)
    # A uniform half circle: |mean of (cos, sin)| = 2/pi.
    angle = (np.arange(1000) + 0.5) * np.pi / 1000
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)[:, None].astype("float32")
    assert concentration(circle) == pytest.approx(2 / np.pi, abs=1e-5)


def test_concentration_of_the_whole_is_not_the_mean_over_batches():
    x = np.asarray(squash(np.random.default_rng(0).normal(size=(60, 3, 4)).astype("float32")))
    # float32 sums of 60 in another order.
    assert concentration(*np.split(x, 6)) == pytest.approx(concentration(x), rel=1e-5)
    assert np.mean([concentration(part) for part in np.split(x, 6)]) > concentration(x) + 0.05


def test_concentration_starts_anew_and_handles_capsules_that_are_off():
    metric = OrientationConcentration(2, 3)
    metric.update_state(np.zeros((4, 2, 3), "float32"))
    assert float(metric.result()) == 0
    metric.update_state(np.ones((4, 2, 3), "float32"))
    assert float(metric.result()) == pytest.approx(1, abs=1e-6)
    metric.reset_state()
    assert float(metric.result()) == 0
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert copy.get_config() == metric.get_config()


def test_usage_is_each_experts_share_times_their_number():
    p = np.array([[0.9, 0.3, 0.0], [0.5, 0.5, 0.0]], "float32")
    expected = [3 * (0.75 + 0.5) / 2, 3 * (0.25 + 0.5) / 2, 0]
    np.testing.assert_allclose(expert_usage(p), expected, rtol=1e-6)
    assert not np.any(expert_usage(0 * p))
    metric = ExpertUsage()
    for usage in ([1.5, 0.5], [1.0, 1.0]):
        metric.update_state(np.array(usage))
    assert float(metric.result()) == pytest.approx(0.75)
    assert metric.name == "rarest_usage"


def draw(seed, counter):
    return keras.random.normal((50,), seed=StatelessSeed(seed, counter))


def test_random_numbers_depend_on_seed_and_counter_alone():
    first = np.asarray(draw(3, 5))
    assert np.array_equal(draw(3, 5), first)
    for other in ((3, 6), (4, 5), (5, 3)):
        assert not np.any(np.asarray(draw(*other)) == first)
    generator = StatelessSeed(3, 5)
    assert np.array_equal(keras.random.normal((50,), seed=generator), first)
    assert np.array_equal(keras.random.normal((50,), seed=generator), first)
    assert np.array_equal(tf.function(draw)(tf.constant(3), tf.constant(5)), first)


@pytest.mark.parametrize("seed", [0, 2**31 - 1, 2**31, 2**40])
def test_any_seed_up_to_64_bits_is_taken(seed):
    drawn = keras.random.uniform((5,), seed=StatelessSeed(seed)).numpy()
    assert np.all((0 <= drawn) & (drawn < 1)) and len(set(drawn)) == 5
