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


def test_the_visited_mixture_finds_the_parts():
    x, winner, side = made()
    found = visits.posterior_mixtures(x, components=2)
    assert {name: array.shape for name, array in found.items()} == {
        "weights": (J, 2), "means": (J, 2, E), "factors": (J, 2, E, E)
    }  # fmt: skip
    # The standard error of a mean is 0.01 / sqrt(150).
    np.testing.assert_allclose(np.sort(found["means"][0][:, 0]), [-0.8, 0.8], atol=0.005)
    share = np.mean(side[winner == 0] > 0)
    assert found["weights"][0][found["means"][0][:, 0].argmax()] == pytest.approx(share, abs=1e-3)
    # Variance 1e-4, and as much again that keeps the covariance regular.
    for factor in found["factors"][0]:
        np.testing.assert_allclose(factor @ factor.T, 2e-4 * np.eye(E), atol=8e-5)
    assert np.isfinite(found["means"][2]).all()


def test_few_codes_get_fewer_components():
    found = visits.posterior_mixtures(made(n=20)[0], components=10)
    assert np.count_nonzero(found["weights"][0]) == 1


def test_the_joint_mixture_has_the_mean_and_covariance_of_the_codes():
    x, _, _ = made(4000)
    found = visits.joint_mixture(x, components=2, rank=J * E)
    weights, means, factors = (found[name][0] for name in ("weights", "means", "factors"))
    assert weights.sum() == len(x) and len(weights) == 2 * J
    share = weights / weights.sum()
    flat = x.reshape(len(x), -1).astype("float64")
    mean = share @ means
    np.testing.assert_allclose(mean, flat.mean(axis=0), atol=1e-6)
    within = np.einsum("k,kef,kgf->eg", share, factors, factors)
    between = np.einsum("k,ke,kg->eg", share, means - mean, means - mean)
    np.testing.assert_allclose(within + between, np.cov(flat.T), atol=1e-4)


def test_of_many_images_some_describe_all(monkeypatch, tmp_path):
    """From a file, of which 100 images of each capsule are looked at: their shares stay."""
    x, winner, _ = made()
    np.save(tmp_path / "codes.npy", x)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    whole = visits.joint_mixture(x, components=1, rank=J * E)
    monkeypatch.setattr(visits, "DESCRIBED", 100)
    monkeypatch.setattr(visits, "_CHUNK", 64)
    some = visits.joint_mixture(mapped, components=1, rank=J * E)
    won = np.bincount(winner, minlength=J)
    np.testing.assert_allclose(some["weights"][0], won)
    np.testing.assert_array_equal(some["weights"], whole["weights"])
    # 100 codes of deviation 0.8: the standard error is 0.08.
    np.testing.assert_allclose(some["means"], whole["means"], atol=0.25)
    assert not np.array_equal(some["means"], whole["means"])
    assert [len(codes) for codes in visits.won_codes(mapped)] == [100] * J
    assert visits.usage(mapped) == visits.usage(x)


def test_the_rank_limits_the_joint_mixture():
    found = visits.joint_mixture(made()[0], components=1, rank=2)
    assert found["factors"].shape == (1, J, J * E, 2)


def test_a_single_code_of_a_part_is_its_mean():
    x = made(n=40)[0]
    x[:] *= 1e-3
    x[0, 2] = [0.5, 0.6]  # the only image that capsule 2 wins
    found = visits.joint_mixture(x, components=1, rank=2)
    assert found["weights"][0][2] == 1
    np.testing.assert_allclose(found["means"][0][2], x[0].ravel(), rtol=1e-6)


def test_more_components_than_codes_take_no_more_memory():
    """Rejects arrays of as many components as are asked for, here petabytes."""
    x = made(n=64)[0]
    one, many = (visits.posterior_mixtures(x, components=k) for k in (8, 10**12))
    for name in one:
        np.testing.assert_array_equal(one[name], many[name])
    found = visits.joint_mixture(x, components=10**12, rank=10**12)
    assert found["factors"].shape == (1, J * 5, J * E, J * E)


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
