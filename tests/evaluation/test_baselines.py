"""Generative baselines, against what their features come from.

Rejected: other means, covariances and mixture components; a bound that is none; training beyond
its budget; hidden neurons that are not sampled jointly, features drawn with their noise, and a
unit of the noise that does not follow the features'.
"""

import functools
import time
import tracemalloc
from types import SimpleNamespace as Model

import keras
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from keras_capsule_poe.evaluation.baselines import (
    BOLTZMANN,
    KINDS,
    SETS,
    VAE,
    BoltzmannBaseline,
    FeatureBaseline,
    VariationalAutoencoder,
    VariationalBaseline,
    baseline_set,
    gaussian_divergence,
    hidden_width,
)
from keras_capsule_poe.evaluation.report import tables

MODEL = Model(capsules=2, dim=3, own_parameters=500)


def test_each_set_holds_the_one_before():
    found = [list(baseline_set(name, MODEL)) for name in SETS]
    assert found == [[], list(KINDS), [*KINDS, BOLTZMANN]]
    assert list(baseline_set("trained", MODEL, vae_seconds=1)) == [*KINDS, BOLTZMANN, VAE]
    with pytest.raises(
        ValueError, match="`baselines` must be 'none' or .*Received: baselines='all'"
    ):
        baseline_set("all", MODEL)
    with pytest.raises(ValueError, match="`vae_seconds` goes with baselines='trained'.*seconds=1"):
        baseline_set("simple", MODEL, vae_seconds=1)


def test_controls_are_as_large_as_the_model():
    made = baseline_set("trained", MODEL, seed=3, vae_seconds=0.1)
    assert made[BOLTZMANN]().model.machine.units == 6
    vae = made[VAE]()
    assert (vae.parameters, vae.seconds, vae.seed) == (500, 0.1, 3)
    # Figures ask the one that was fitted what it took; others go when they have been drawn from.
    assert made[VAE]() is vae and made["full_gaussian"]() is not made["full_gaussian"]()
    features = np.random.default_rng(0).normal(size=(20, 4))
    drawn = [made[name]().fit(features).sample(3, seed=0) for name in KINDS]
    assert [x.shape for x in drawn] == [(3, 4)] * 3


def test_the_note_of_a_table_describes_trained_baselines_that_are_in_it():
    for present in ((), (BOLTZMANN,), (BOLTZMANN, VAE)):
        rows = dict.fromkeys(("real", *present), {"confident": 0.5})
        ((_, note, *_),) = tables({"samples": rows})
        assert ("Boltzmann machine" in note) == (BOLTZMANN in present)
        assert ("variational autoencoder" in note) == (VAE in present)


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


def test_a_full_gaussian_has_the_mean_and_covariance_of_the_features():
    for dtype in ("float16", "float32"):
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


def test_a_mixture_of_few_rows_has_fewer_components():
    features = np.random.default_rng(0).normal(size=(9, 4))
    drawn = FeatureBaseline("gaussian_mixture").fit(features).sample(20, seed=0)
    assert drawn.shape == (20, 4) and np.isfinite(drawn).all()


def curve(n, seed):
    """Features (n, 12) on a bent line, and noise of 0.05."""
    random = np.random.default_rng(seed)
    t = random.normal(size=(n, 1))
    bent = np.concatenate([t, np.sin(2 * t), np.cos(2 * t)], axis=1) @ random.normal(size=(3, 12))
    return (5 + bent + 0.05 * random.normal(size=(n, 12))).astype("float32")


def test_as_many_parameters_as_asked_for():
    for size, code, asked in ((4608, 16, 3_040_000), (784, 16, 400_000)):
        model = VariationalAutoencoder(size, hidden_width(asked, size, code), code)
        assert model.count_params() == pytest.approx(asked, rel=0.05)
    # Too few give the smallest network.
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
    sample = FeatureBaseline("full_gaussian").fit(correlated()).sample(10, seed=0)
    assert len(np.unique(sample.round(3), axis=0)) == 10
    baseline = BoltzmannBaseline(neurons=20, epochs=1, initial_stddev=1.0)
    sample = baseline.fit(groups(n=50)[0]).sample(12, seed=0)
    assert sample.shape == (12, 10)
    # Two of a part may have settled in one state.
    assert len(np.unique(sample.round(4), axis=0)) > 4
