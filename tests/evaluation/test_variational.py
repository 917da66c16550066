"""The variational baseline: its bound against NumPy, what it learns, its budget and its size."""

import time

import keras
import numpy as np
import pytest

from keras_capsule_poe.evaluation.baselines import (
    VariationalAutoencoder,
    VariationalBaseline,
    gaussian_divergence,
    hidden_width,
)


def curve(n, seed):
    """Features (n, 12) on a bent line, and noise of 0.05."""
    random = np.random.default_rng(seed)
    t = random.normal(size=(n, 1))
    bent = np.concatenate([t, np.sin(2 * t), np.cos(2 * t)], axis=1) @ random.normal(size=(3, 12))
    return (5 + bent + 0.05 * random.normal(size=(n, 12))).astype("float32")


@pytest.mark.parametrize("size, code, asked", [(4608, 16, 3_040_000), (784, 16, 400_000)])
def test_as_many_parameters_as_asked_for(size, code, asked):
    model = VariationalAutoencoder(size, hidden_width(asked, size, code), code)
    assert model.count_params() == pytest.approx(asked, rel=0.05)


def test_too_few_parameters_give_the_smallest():
    assert hidden_width(10, 64, 16) == 1


def test_the_divergence_is_that_of_the_definition():
    random = np.random.default_rng(0)
    mean, log_variance = random.normal(size=(2, 1, 3))
    z = mean + np.exp(log_variance / 2) * random.normal(size=(400_000, 3))
    log_q = -(np.square(z - mean) / np.exp(log_variance) + log_variance).sum(axis=1) / 2
    draws = log_q + np.square(z).sum(axis=1) / 2
    found = float(gaussian_divergence(mean, log_variance)[0])
    # Four standard errors.
    assert found == pytest.approx(draws.mean(), abs=4 * draws.std() / len(z) ** 0.5)


def test_the_loss_is_the_bound_at_the_best_variance():
    model = VariationalAutoencoder(12, hidden=4, code=2)
    x = curve(9, 0)
    found = {name: np.asarray(value) for name, value in model(x).items()}
    loss = float(model.compute_loss(x, y_pred=model(x)))
    noise = [float(model.compute_loss(x, y_pred=model(x))) for _ in range(3)]
    assert len({loss, *noise}) == 4  # a code is drawn, not its mean taken

    squares = np.square(x - found["decoded"]).sum(axis=1)
    divergence = np.asarray(gaussian_divergence(found["mean"], found["log_variance"]))
    v = np.geomspace(1e-2, 1e4, 20_001)
    bound = np.mean(divergence) + np.mean(squares) / v / 2 + 12 / 2 * np.log(v)
    pred = {name: keras.ops.convert_to_tensor(value) for name, value in found.items()}
    # Up to the constant K / 2, which the best v leaves of the squares.
    assert float(model.compute_loss(x, y_pred=pred)) + 6 == pytest.approx(bound.min(), rel=1e-5)


@pytest.mark.long
def test_its_samples_lie_where_the_features_do():
    features, others = curve(2000, 0), curve(2000, 0)[::2]
    baseline = VariationalBaseline(2000, steps=400, code=2).fit(features)
    found = baseline.sample(1000, seed=1)

    def apart(x):
        return np.median(np.sqrt(np.square(x[:, None] - others).sum(axis=-1)).min(axis=1))

    # A Gaussian of the same mean and covariance misses the bent line.
    random = np.random.default_rng(2)
    plain = random.multivariate_normal(features.mean(axis=0), np.cov(features.T), 1000)
    assert apart(found) < 0.6 * apart(plain)
    # What a code that is not quite the prior's leaves; not the scale, nor the mean forgotten.
    mean = features.mean(axis=0)
    spread = np.sqrt(np.square(features - mean).sum(axis=1).mean())
    assert np.linalg.norm(found.mean(axis=0) - mean) < 0.5 * spread
    assert baseline.about["steps"] == 400 and baseline.about["parameters"] == pytest.approx(
        2000, rel=0.05
    )


@pytest.mark.long
def test_equal_seeds_and_steps_give_equal_samples():
    first, again = (
        VariationalBaseline(500, steps=5, code=2, seed=1).fit(curve(64, 0)) for _ in range(2)
    )
    assert np.array_equal(first.sample(4, seed=0), again.sample(4, seed=0))
    assert not np.array_equal(first.sample(4, seed=0), first.sample(4, seed=1))


def test_training_ends_when_its_time_is_up():
    baseline = VariationalBaseline(500, seconds=0.2, code=2)
    began = time.perf_counter()
    about = baseline.fit(curve(64, 0).astype("float16")).about
    # The graph, and one step too many, on a busy machine.
    assert about["seconds"] >= 0.2 and time.perf_counter() - began < 60
    assert about["steps"] > 1 and np.isfinite(baseline.sample(3, seed=0)).all()


@pytest.mark.parametrize("name", ["parameters", "seconds", "steps", "code"])
def test_bad_arguments_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be above zero. Received: {name}=0"):
        VariationalBaseline(**{"parameters": 9, name: 0})


def test_features_must_be_a_matrix_and_sampling_waits_for_them():
    baseline = VariationalBaseline(9)
    with pytest.raises(RuntimeError, match="Call `fit` first"):
        baseline.sample(1, seed=0)
    with pytest.raises(ValueError, match="Received: shape"):
        baseline.fit(np.zeros((1, 3)))
