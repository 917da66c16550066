"""The baseline that is a Boltzmann machine, against groups that its features come from.

Wrong versions that these tests reject: hidden neurons that are not sampled jointly, features
drawn with their noise, a unit of the noise that does not follow the features'.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe.evaluation.baselines import BoltzmannBaseline

SHARES = np.array([0.4, 0.1, 0.1, 0.4])


def groups(n=1500, unit=1.0, seed=0):
    """Features about four centres, a square in 10 dimensions; the opposite ones are frequent."""
    random = np.random.default_rng(seed)
    corners = 2.0 * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    plane = np.linalg.qr(random.normal(size=(10, 2)))[0]
    scores = corners[random.choice(4, n, p=SHARES)] + 0.3 * random.normal(size=(n, 2))
    noise = 0.3 * random.normal(size=(n, 10))
    return (unit * (scores @ plane.T + noise + 1)).astype("float32"), corners, plane


@pytest.mark.long
def test_it_has_the_groups_of_the_features():
    unit = 1e-3  # the noise follows it
    features, corners, plane = groups(unit=unit)
    baseline = BoltzmannBaseline(
        neurons=8, noise=0.3, epochs=30, chains=100, learning_rate=0.03, initial_stddev=0.1
    )
    sample = baseline.fit(features).sample(4000, seed=1) / unit
    scores = (sample - 1) @ plane
    nearest = ((scores[:, None] - corners) ** 2).sum(axis=-1).argmin(axis=1)
    found = np.bincount(nearest, minlength=4) / len(scores)
    # Independent neurons would give each corner a quarter. The machine is a fit, not the truth.
    np.testing.assert_allclose(found, SHARES, atol=0.08)
    for corner in range(4):
        mean = scores[nearest == corner].mean(axis=0)
        np.testing.assert_allclose(mean, corners[corner], atol=0.5)
    # E[v | h] has none of the noise of v: outside the plane next to nothing is left.
    outside = sample - 1 - scores @ plane.T
    assert outside.std() < 0.15


@pytest.mark.long
def test_it_follows_its_seeds_alone():
    features, _, _ = groups(n=200)
    drawn = []
    for draw, training in ((0, 0), (0, 0), (1, 1)):
        keras.utils.set_random_seed(len(drawn))
        baseline = BoltzmannBaseline(neurons=4, epochs=1, seed=training)
        drawn.append(baseline.fit(features.astype("float16")).sample(7, seed=draw))
    assert drawn[0].shape == (7, 10) and drawn[0].dtype == np.float32
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.abs(drawn[0] - drawn[2]).max() > 1e-4


def test_many_samples_are_not_one_part_repeated(monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.evaluation.baselines.ROWS", 4)
    baseline = BoltzmannBaseline(neurons=20, epochs=1, initial_stddev=1.0)
    sample = baseline.fit(groups(n=50)[0]).sample(12, seed=0)
    assert sample.shape == (12, 10)
    # Two of a part may have settled in one state.
    assert len(np.unique(sample.round(4), axis=0)) > 4


def test_what_cannot_be_fitted_or_drawn_is_refused():
    for name in ("noise", "initial_stddev"):
        with pytest.raises(ValueError, match=f"`{name}` must be above zero. Received: {name}=0"):
            BoltzmannBaseline(3, **{name: 0})
    with pytest.raises(RuntimeError, match="Call `fit` first"):
        BoltzmannBaseline(3).sample(3, seed=0)
    with pytest.raises(ValueError, match=r"Received: shape \(5, 2, 2\)"):
        BoltzmannBaseline(3).fit(np.zeros((5, 2, 2)))
