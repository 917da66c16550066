"""What is recorded of the codes of training images."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from keras_capsule_poe import Whitening
from keras_capsule_poe.models.capsule_poe import codes as visits

J, E = 3, 2


def made(n=600, seed=0):
    """Codes of which capsules 0 and 1 win, each from two Gaussians far apart; 2 never wins."""
    random = np.random.default_rng(seed)
    winner, side = random.integers(2, size=n), random.choice([-1, 1], size=n)
    x = 0.01 * random.normal(size=(n, J, E))
    x[np.arange(n), winner, winner] += 0.8 * side
    return x.astype("float32"), winner, side


def test_winners_and_mean_directions():
    x, winner, _ = made()
    np.testing.assert_array_equal(visits.winners(x), winner)
    means = visits.mean_directions(x)
    np.testing.assert_allclose(means[0], x[winner == 0, 0].mean(axis=0), rtol=1e-5)
    # Where one capsule wins all images the others have a half-sphere, too.
    np.testing.assert_allclose(means[2], x[:, 2].mean(axis=0), rtol=1e-5)
    assert np.linalg.norm(means[2]) > 0


def test_each_expert_turns_to_what_its_own_images_share():
    """Of the images that it wins, and no others: there the second part of x moves it most."""
    random, n = np.random.default_rng(1), 400
    winner = random.integers(2, size=n)
    x = random.normal(size=(n, 4, 1)) * np.array([1, 1, 5, 1])[:, None]
    x[winner == 1, 2] /= 25
    z = np.zeros((n, J, E))
    z[winner == 0, 0] = 10 + x[winner == 0, 1:3, 0]
    z[winner == 1, 1] = 10 + x[winner == 1, 1:3, 0]
    whitening = Whitening()
    whitening.build((None, J, E))
    visits.adapt_whitening(SimpleNamespace(whitening=whitening), z, lambda rows: x[rows])
    turned = np.asarray(whitening.whitening)
    # Which entry of z each dimension is made of.
    assert np.abs(turned).argmax(axis=2).tolist()[:2] == [[1, 0], [0, 1]]
    np.testing.assert_array_equal(turned[2], np.eye(E))  # it wins no image


def parts_of(mixture):
    """Weights (J, K), means (J, K, D) and factors (J, D, R) of a tied mixture."""
    weights, means, factors = (np.asarray(each, "float64") for each in mixture.get_weights())
    return weights, means, factors[:, 0]


def test_the_mixture_of_a_capsule_finds_the_parts_of_its_images():
    """Of whole codes and of shared codes, which follow the side."""
    x, winner, side = made()
    random = np.random.default_rng(1)
    shared = (5 * side[:, None] + random.normal(size=(len(x), 4))).astype("float32")
    weights, means, factors = parts_of(visits.mixture_of(x, shared, components=2))
    assert weights.shape == (J, 2) and means.shape == (J, 2, J * E + 4)
    for j in (0, 1):
        found = means[j][:, 2 * j + j]  # the coordinate with two sides
        # The standard error of a mean is 0.01 / sqrt(150), and 1 / sqrt(150).
        np.testing.assert_allclose(np.sort(found), [-0.8, 0.8], atol=0.005)
        np.testing.assert_allclose(means[j][found.argmax(), J * E :], 5, atol=0.5)
        assert weights[j].sum() == pytest.approx(np.sum(winner == j))
        own = weights[j][found.argmax()] / weights[j].sum()
        assert own == pytest.approx(np.mean(side[winner == j] > 0), abs=1e-3)
        wanted = np.diag([1e-4] * J * E + [1.0] * 4)
        np.testing.assert_allclose(factors[j] @ factors[j].T, wanted, atol=0.25)
    # A capsule that wins no image draws like all images, and never in the mode `joint`.
    assert weights[2].sum() < 0.01 and np.isfinite(means[2]).all()


def test_few_images_get_fewer_gaussians():
    """Rejects components of a few images, whose draws would be copies of them."""
    weights, _, _ = parts_of(visits.mixture_of(made(n=100)[0], np.zeros((100, 0)), components=10))
    counts = np.count_nonzero(weights, axis=1)
    assert counts[0] in (3, 4) and counts[1] in (3, 4) and weights.shape == (J, 4)
    weights, _, _ = parts_of(visits.mixture_of(made(n=10)[0], np.zeros((10, 0)), components=10))
    assert np.count_nonzero(weights, axis=1).tolist() == [1, 1, 1]


def test_a_mixture_has_the_mean_and_covariance_of_the_codes():
    x, winner, _ = made(4000)
    won, x = winner == 0, x.copy()
    x[won] += np.random.default_rng(2).normal(size=(won.sum(), J, E)).astype("float32")
    x[won, 0] += 20  # so that it still wins
    found = visits.mixture_of(x, np.zeros((len(x), 0)), components=1)
    _, means, factors = (part[0] for part in parts_of(found))
    flat = x[won].reshape(won.sum(), -1).astype("float64")
    np.testing.assert_allclose(means[0], flat.mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(factors @ factors.T, np.cov(flat.T), rtol=1e-3, atol=1e-4)


def test_the_means_of_clusters_take_degrees_of_freedom():
    """Twelve images a cluster: without the correction, variances are an eleventh too small."""
    x = np.zeros((2400, 1, 40), "float32")
    x[:, 0] = np.random.default_rng(0).normal(size=(2400, 40))
    x[:, 0, 0] = 1_000 * (np.arange(2400) % 200)  # clusters that k-means cannot miss
    weights, _, factors = parts_of(visits.mixture_of(x, np.zeros((2400, 0)), components=200))
    assert np.count_nonzero(weights) == 200
    variances = np.sort(np.linalg.eigvalsh(factors[0] @ factors[0].T))[-32:]
    # Of the 39 axes, 32 are kept: by chance the larger ones. Compare with those of true clusters.
    inner = x[:, 0, 1:].reshape(12, 200, 39)
    inner = (inner - inner.mean(axis=0)).reshape(2400, 39).astype("float64")
    wanted = np.sort(np.linalg.eigvalsh(inner.T @ inner / 2200))[-32:]
    np.testing.assert_allclose(variances, wanted, rtol=1e-3)


def test_a_capsule_with_few_images_draws_these():
    """Rejects codes of images that others win, in which the capsule is short."""
    x = made(n=600)[0]
    x[0, 2] = [0.7, 0.6]  # the only image that capsule 2 wins
    _, means, factors = parts_of(visits.mixture_of(x, np.zeros((600, 0)), components=3))
    np.testing.assert_allclose(means[2, 0], x[0].ravel(), rtol=1e-6)
    assert not factors[2].any()


def test_capsules_that_win_no_image_share_the_fit_of_all_images(monkeypatch):
    fits, fit = [], visits.tied_mixture
    monkeypatch.setattr(
        visits, "tied_mixture", lambda *args: fits.append(len(args[0])) or fit(*args)
    )
    x, winner, _ = made()
    kept = x[winner == 0]
    shared = np.random.default_rng(1).normal(size=(len(kept), 2))
    weights, means, factors = parts_of(visits.mixture_of(kept, shared, components=2))
    assert fits == [len(kept)] * 2  # of the winner's images, which are all; and of all images
    for capsule in (1, 2):
        np.testing.assert_array_equal(means[capsule], means[0])
        np.testing.assert_array_equal(factors[capsule], factors[0])
        assert 0 < weights[capsule].sum() < 1e-4 * weights[0].sum()


def test_of_many_images_some_describe_all(monkeypatch, tmp_path):
    """From a file, of which 100 images of each capsule are looked at: their shares stay."""
    x, winner, _ = made()
    np.save(tmp_path / "codes.npy", x)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    none = np.zeros((len(x), 0))
    whole = parts_of(visits.mixture_of(x, none, components=1))
    monkeypatch.setattr(visits, "DESCRIBED", 100)
    monkeypatch.setattr(visits, "_CHUNK", 64)
    some = parts_of(visits.mixture_of(mapped, none, components=1))
    np.testing.assert_allclose(some[0][:2, 0], np.bincount(winner, minlength=J)[:2])
    np.testing.assert_array_equal(some[0], whole[0])
    # 100 codes of deviation 0.8: the standard error is 0.08.
    np.testing.assert_allclose(some[1], whole[1], atol=0.25)
    assert not np.array_equal(some[1], whole[1])
    assert visits.usage(mapped) == visits.usage(x)


def test_equal_codes_leave_gaussians_empty():
    """Without a warning, and with finite draws."""
    x = np.zeros((60, J, E), "float32")
    x[:, 1] = 0.5
    mixture = visits.mixture_of(x, np.zeros((60, 0)), components=4)
    choice = np.linspace(0, 0.999, 50, dtype="float32")
    drawn = mixture(np.ones((50, mixture.rank), "float32"), choice, np.full(50, 1, "int32"))
    np.testing.assert_allclose(drawn, np.repeat(x[:1].reshape(1, -1), 50, axis=0), atol=1e-6)


def test_more_gaussians_than_codes_take_no_more_memory():
    """Rejects arrays of as many components as are asked for, here petabytes."""
    x = made(n=96)[0]
    one, many = (visits.mixture_of(x, np.zeros((96, 0)), components=k) for k in (8, 10**12))
    for mine, theirs in zip(one.get_weights(), many.get_weights()):
        np.testing.assert_array_equal(mine, theirs)


def test_few_codes_of_many_dimensions_have_the_axes_of_their_covariance():
    x = np.random.default_rng(0).normal(size=(5, 40)) * np.linspace(1, 3, 40)
    factor = visits._principal_axes(x, rank=8)
    assert factor.shape == (40, 8)
    # Five codes differ along four axes; the deviation of others is the root of a rounding error.
    np.testing.assert_allclose(factor @ factor.T, np.cov(x.T), atol=1e-12)
    assert np.abs(factor[:, 4:]).max() < 1e-6


def test_a_handful_of_codes_of_many_capsules_takes_no_minutes():
    """The axes of a covariance of 3,200 dimensions took 20 s, and each capsule has its own."""
    x = np.random.default_rng(0).normal(size=(4, 3200))
    began = time.perf_counter()
    visits._principal_axes(x, rank=64)
    assert time.perf_counter() - began < 1
