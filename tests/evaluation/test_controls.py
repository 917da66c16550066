"""Controls against the means, covariances and mixtures that their features come from."""

import functools
import tracemalloc

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from keras_capsule_poe.evaluation.baselines import KINDS, FeatureBaseline

N = 40_000


def correlated(n=500, k=8, seed=0):
    random = np.random.default_rng(seed)
    return (random.normal(size=(n, k)) @ random.normal(size=(k, k)) + 3).astype("float32")


def mixed(n=3000, seed=0):
    """Two Gaussians of different weight, mean and covariance, in a plane of 10 dimensions."""
    random = np.random.default_rng(seed)
    which = random.random(n) < 0.25
    scores = random.normal(size=(n, 2)) * np.where(which[:, None], [1.0, 0.1], [0.2, 0.6])
    plane = np.linalg.qr(random.normal(size=(10, 2)))[0]
    return ((scores + np.where(which[:, None], 4, -4)) @ plane.T + 1).astype("float32"), plane


def largest_error(sample, mean, covariance):
    """Largest error of the sample's mean and covariance, in their own standard errors."""
    variance = np.diag(covariance)
    of_mean = np.abs(sample.mean(axis=0) - mean) / np.sqrt(variance / N)
    # Isserlis: an entry of a Gaussian's covariance has variance (C_ii C_jj + C_ij^2)/N.
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / N)
    of_covariance = np.abs(np.cov(sample, rowvar=False) - covariance) / spread
    return max(of_mean.max(), of_covariance.max())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_full_gaussian_has_the_mean_and_covariance_of_the_features(dtype):
    x = correlated(n=20).astype(dtype)  # few: N - 1 and N differ by seven standard errors
    sample = FeatureBaseline("full_gaussian").fit(x).sample(N, seed=1).astype("float64")
    truth = x.astype("float64")
    # The largest of 44 errors is beyond five only once in 40,000 times.
    assert largest_error(sample, truth.mean(axis=0), np.cov(truth.T)) < 5


def test_a_diagonal_gaussian_has_only_the_variances():
    x = correlated(n=20)
    sample = FeatureBaseline("diagonal_gaussian").fit(x).sample(N, seed=1).astype("float64")
    covariance = np.cov(x.astype("float64").T)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 1
    assert largest_error(sample, x.mean(axis=0), np.diag(np.diag(covariance))) < 5


def test_a_full_gaussian_of_few_features_stays_in_their_span():
    x = correlated(n=4, k=9)
    sample = FeatureBaseline("full_gaussian").fit(x).sample(50, seed=0)
    # Four points have a span of three dimensions about their mean; all else is rounding.
    values = np.linalg.svd(sample - x.mean(axis=0), compute_uv=False)
    assert values[2] > 1 and values[3] < 1e-4


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_a_mixture_has_its_parts(unit):
    """At any scale of the features, since the floor of the variances follows it."""
    x, plane = mixed()
    baseline = FeatureBaseline("gaussian_mixture", rank=2, components=2).fit(unit * x)
    sample = baseline.sample(N, seed=1) / unit
    scores, given = (a @ plane for a in (sample - 1, x - 1))
    # Rank two: what is drawn lies in the plane that the features lie in.
    np.testing.assert_allclose(scores @ plane.T + 1, sample, atol=1e-4)
    # Of 3000, features are a quarter within 4 sqrt(3/16/N); samples follow the features'.
    assert np.mean(scores[:, 0] > 0) == pytest.approx(np.mean(given[:, 0] > 0), abs=0.01)
    for side in (1, -1):
        drawn, real = (a[side * a[:, 0] > 0] for a in (scores, given))
        # Means to four standard errors of 10,000 draws of deviation one or less.
        np.testing.assert_allclose(drawn.mean(axis=0), real.mean(axis=0), atol=0.04)
        # Variances to 4 sqrt(2/10^4) of their own, and the floor of 1e-3 of the axes' mean of 6.5.
        np.testing.assert_allclose(np.cov(drawn.T), np.cov(real.T), rtol=0.06, atol=0.02)


def test_all_controls_are_float32_and_follow_the_seed():
    x, _ = mixed(n=300)
    for kind in KINDS:
        baseline = FeatureBaseline(kind).fit(x.astype("float16"))
        one, same, other = (baseline.sample(7, seed=seed) for seed in (3, 3, 4))
        assert one.shape == (7, 10) and one.dtype == np.float32
        np.testing.assert_array_equal(one, same)
        assert np.abs(one - other).max() > 0.1


def test_a_mixture_may_stop_early_but_other_warnings_are_heard(monkeypatch):
    # Without tolerance no fit converges, of which a warning would be an error here.
    never = functools.partial(GaussianMixture, tol=0)
    monkeypatch.setattr("sklearn.mixture.GaussianMixture", never)
    FeatureBaseline("gaussian_mixture", components=5).fit(correlated(n=200, k=3))
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        FeatureBaseline("gaussian_mixture", components=5).fit(np.repeat(correlated(4), 5, axis=0))


def test_many_samples_are_not_one_part_repeated(monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.evaluation.baselines.ROWS", 4)
    sample = FeatureBaseline("full_gaussian").fit(correlated()).sample(10, seed=0)
    assert len(np.unique(sample.round(3), axis=0)) == 10


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "kind, copies",
    # What is kept is a root as large as the features; decompositions work on a copy of them.
    [("diagonal_gaussian", 0.5), ("full_gaussian", 1.1), ("gaussian_mixture", 2.5)],
)
def test_no_needless_copies_of_features_are_made(kind, copies):
    """Rejected: features in float64, twice their size; all samples at once, as many again."""
    features = np.random.default_rng(0).normal(size=(2000, 4096)).astype("float32")
    baseline = FeatureBaseline(kind, rank=5, components=2)
    _, fitting = of_memory(lambda: baseline.fit(features))
    assert fitting < copies * features.nbytes
    drawn, drawing = of_memory(lambda: sum(len(x) for x in baseline.blocks(8000, 0)))
    # A block of 1,000 samples, the noise that it is made of, and the block before.
    assert drawn == 8000 and drawing < 4.5 * 1000 * 4096 * 4


def test_blocks_are_the_sample():
    baseline = FeatureBaseline("full_gaussian").fit(correlated())
    parts = list(baseline.blocks(2300, seed=4))
    assert [len(part) for part in parts] == [1000, 1000, 300]
    np.testing.assert_array_equal(np.concatenate(parts), baseline.sample(2300, seed=4))


def of_memory(call):
    """What a call gives, and the most bytes that NumPy held while it ran."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_cannot_be_fitted_or_drawn_is_refused():
    with pytest.raises(ValueError, match="Received: 'gaussian'"):
        FeatureBaseline("gaussian")
    with pytest.raises(RuntimeError, match="Call `fit` first"):
        FeatureBaseline("full_gaussian").sample(3, seed=0)
    with pytest.raises(ValueError, match=r"Received: shape \(5, 2, 2\)"):
        FeatureBaseline("full_gaussian").fit(np.zeros((5, 2, 2)))
    with pytest.raises(ValueError, match="2 or more rows"):
        FeatureBaseline("gaussian_mixture").fit(np.zeros((1, 4)))


def test_a_mixture_of_few_rows_has_fewer_components():
    features = np.random.default_rng(0).normal(size=(9, 4))
    drawn = FeatureBaseline("gaussian_mixture").fit(features).sample(20, seed=0)
    assert drawn.shape == (20, 4) and np.isfinite(drawn).all()
