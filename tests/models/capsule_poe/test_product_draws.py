"""What the whole model draws: codes of single capsules by domain, joint codes, their images."""

import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions import squash
from keras_capsule_poe.models.capsule_poe.layers import GaussianMixtures

J, E = 5, 3
SHAPE = (20, 22, 1)


@pytest.fixture(scope="module")
def model(small_product):
    return small_product(SHAPE)


def test_sample(model):
    got = model.sample(52, 7)
    assert set(got) == {"images", "capsules", "index"}
    assert got["images"].shape == (52, *SHAPE) and got["capsules"].shape == (52, J, E)
    on = np.any(np.asarray(got["capsules"]) != 0, axis=-1)
    capsule = np.asarray(got["capsule"])
    assert np.array_equal(on, np.eye(J, dtype=bool)[capsule])
    # Each block shows each capsule once; their orders differ.
    blocks = capsule[:50].reshape(10, J)
    assert np.array_equal(np.sort(blocks, axis=1), [np.arange(J)] * 10)
    assert len({tuple(block) for block in blocks}) > 5  # of 120 orders; seeded
    assert len(set(capsule[50:])) == 2
    np.testing.assert_allclose(got["images"], model.decode(got["capsules"])["images"], atol=1e-6)


@pytest.mark.parametrize("domain", ["prior", "half_space", "posterior"])
def test_samples_depend_on_the_seed_alone(model, domain):
    first = model.sample(6, 7, domain=domain)
    again = model.sample(6, 7, domain=domain)
    for name in first:
        assert np.array_equal(first[name], again[name])
    tensors = model.sample(tf.constant(6), tf.constant(7), domain=domain)
    for name in tensors:
        # Images are decoded by a graph or without one.
        np.testing.assert_allclose(first[name], tensors[name], atol=1e-6)
    assert not np.array_equal(first["capsules"], model.sample(6, 8, domain=domain)["capsules"])
    one = model.sample_capsule(2, 6, 7, domain)
    assert np.array_equal(one["capsules"], model.sample_capsule(2, 6, 7, domain)["capsules"])
    assert not np.array_equal(one["capsules"], model.sample_capsule(2, 6, 8, domain)["capsules"])


def test_sample_capsule(model):
    for capsule in (0, J - 1):
        got = model.sample_capsule(capsule, 6, 1)
        assert set(got) == {"images", "capsules"}
        assert got["images"].shape == (6, 20, 22, 1)
        on = np.any(np.asarray(got["capsules"]) != 0, axis=-1)
        assert np.array_equal(on, np.eye(J, dtype=bool)[[capsule] * 6])


def chosen(code, capsule):
    return np.asarray(code["capsules"])[np.arange(len(capsule)), capsule]


@pytest.fixture(scope="module")
def noise():
    random = np.random.default_rng(0)
    z, choice = random.normal(size=(200, E)), random.uniform(size=200)
    return z.astype("float32"), choice.astype("float32"), np.arange(200, dtype="int32") % J


def test_the_prior_domain_is_the_gaussian(model, noise):
    z, _, capsule = noise
    code = model.single_code(*noise, "prior")
    np.testing.assert_allclose(chosen(code, capsule), squash(z), rtol=1e-6)
    assert np.array_equal(model.single_code(*noise)["capsules"], code["capsules"])


def test_the_half_space_domain_is_a_half_sphere(model, noise):
    z, _, capsule = noise
    codes = chosen(model.single_code(*noise, "half_space"), capsule)
    mean = np.asarray(model.mean_direction)[capsule]
    assert np.all(np.sum(codes * mean, axis=-1) >= 0)
    # Reflected, not moved: the same vector or its opposite, and both occur.
    plain = np.asarray(squash(z))
    same = np.all(np.isclose(codes, plain, rtol=1e-5), axis=-1)
    opposite = np.all(np.isclose(codes, -plain, rtol=1e-5), axis=-1)
    assert np.all(same ^ opposite) and same.any() and opposite.any()


def drawn(model, noise, choice, winner):
    """Whole codes (N, J, E) of the stored mixture, one by one in float64."""
    weights, means, factors = (np.asarray(each, "float64") for each in model.visited.get_weights())
    np.testing.assert_array_equal(weights, [[1, 3, 0]] * J)
    component = (choice > 0.25).astype(int)
    assert 0 < component.mean() < 1
    codes = [
        means[j, k] + factors[j, 0] @ v.astype("float64")
        for v, k, j in zip(noise, component, winner)
    ]
    codes = np.reshape(codes, (len(noise), J, E))
    length = np.linalg.norm(codes, axis=-1, keepdims=True)
    assert (length > 0.98).any() and (length < 0.98).any()
    return codes * np.minimum(1, 0.98 / length)


def test_the_posterior_domain_is_the_winner_s_part_of_a_whole_code(model, noise):
    _, choice, winner = noise
    z = np.random.default_rng(5).normal(size=(200, 2)).astype("float32")
    whole = drawn(model, z, choice, winner)
    np.testing.assert_allclose(
        model.whole_code(z, choice, winner)["capsules"], whole, rtol=1e-4, atol=1e-6
    )
    code = model.single_code(z, choice, winner, "posterior")
    on = np.eye(J)[winner][:, :, None]
    np.testing.assert_allclose(code["capsules"], whole * on, rtol=1e-4, atol=1e-6)


def test_joint_draws_are_whole_codes_of_the_winners_of_training(model):
    """Capsules win as often as in training. Rejects equal shares, and one capsule alone."""
    before = model.visited.get_weights()
    weights = np.array(before[0])
    weights[0] *= 6
    model.visited.set_weights([weights, *before[1:]])
    try:
        codes = np.asarray(model.draw(4000, 3, "joint")["capsules"])
    finally:
        model.visited.set_weights(before)
    assert np.all(np.any(codes != 0, axis=-1))
    # The nearest mean tells the capsule that won: draws stay within a few hundredths of it.
    means = np.asarray(before[1], "float64").reshape(J, 3, J, E)[:, :2]
    length = np.linalg.norm(means, axis=-1, keepdims=True)
    means *= np.minimum(1, 0.98 / length)
    gaps = np.square(codes[:, None, None] - means).sum(axis=(3, 4))
    share = np.bincount(gaps.min(axis=2).argmin(axis=1), minlength=J) / len(codes)
    wanted = weights.sum(axis=1) / weights.sum()
    # Three standard deviations of a share of 4,000 draws.
    np.testing.assert_allclose(share, wanted, atol=3 * 0.5 / 4000**0.5)


def test_a_model_of_a_former_version_draws_as_it_did(model, noise):
    """Directions of its own mixture, with the lengths of squashed noise; whole codes stretched."""
    random = np.random.default_rng(6)
    weights = np.array([[1.0, 3.0]] * J)
    means, factors = random.normal(size=(J, 2, E)), random.normal(size=(J, 2, E, E))
    whole, axes = random.normal(size=(1, 2, J * E)), random.normal(size=(1, 2, J * E, 3))
    parts = model.autoencoder, model.primary, model.encoder, model.decoder
    visited = GaussianMixtures.of(weights, means, factors)
    former = type(model)(*parts, visited, GaussianMixtures.of(weights[:1], whole, axes))
    former.build((None, *model.autoencoder.image_shape))
    z, choice, capsule = noise
    component = (choice > 0.25).astype(int)
    found = chosen(former.single_code(*noise, "posterior"), capsule)
    wanted = np.array([means[j, k] + factors[j, k] @ v for v, k, j in zip(z, component, capsule)])
    square = np.sum(z.astype("float64") ** 2, axis=-1, keepdims=True)
    wanted *= square / (1 + square) / np.linalg.norm(wanted, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)  # float32 products
    v = random.normal(size=(200, 3)).astype("float32")
    codes = np.asarray(former.joint_code(v, choice))
    wanted = np.array([whole[0, k] + axes[0, k] @ each for each, k in zip(v, component)])
    wanted = wanted.reshape(codes.shape)
    square = np.sum(v.astype("float64")[:, :E] ** 2, axis=-1)
    wanted *= (square / (1 + square) / np.linalg.norm(wanted, axis=-1).max(axis=-1))[:, None, None]
    np.testing.assert_allclose(codes, wanted, rtol=1e-3, atol=1e-5)
    assert former.draw(4, 0, "joint")["capsules"].shape == (4, J, E)
    with pytest.raises(ValueError, match=f"must have {J * E} dimensions.*Received: dim={E}"):
        type(model)(*parts, visited)


def test_sample_joint(model):
    got = model.sample_joint(5, 7)
    assert got["images"].shape == (5, *model.autoencoder.image_shape)
    np.testing.assert_allclose(got["images"], model.decode(got["capsules"])["images"], atol=1e-6)
    assert np.array_equal(model.sample_joint(5, 7)["capsules"], got["capsules"])
    assert not np.array_equal(model.sample_joint(5, 8)["capsules"], got["capsules"])


@pytest.mark.parametrize("domain", ["half", ""])
def test_unknown_domains_are_refused(model, noise, domain):
    match = "`domain` must be one of 'prior', 'half_space', 'posterior' in mode 'single'"
    for call in (
        lambda: model.single_code(*noise, domain),
        lambda: model.sample(2, 0, domain=domain),
        lambda: model.sample_capsule(0, 2, 0, domain),
    ):
        with pytest.raises(BadUse, match=match):
            call()


def test_modes_are_named_where_there_is_none_such(model):
    assert model.resolve_mode() == ("single", "prior")
    assert model.resolve_mode("joint") == ("joint", None)
    with pytest.raises(BadUse, match="one of 'single', 'joint'. Received: mode='chain'"):
        model.sample(2, 0, "chain")
    with pytest.raises(BadUse, match="`domain` must be left out: there is none in mode 'joint'"):
        model.draw(2, 0, "joint", "posterior")


@pytest.mark.parametrize("capsule", [-1, J, np.int64(J)])
def test_capsules_that_are_not_there_are_refused(model, capsule):
    with pytest.raises(BadUse, match=f"{J} capsules, from 0. Received: capsule={capsule}"):
        model.sample_capsule(capsule, 2, 0)


@pytest.mark.parametrize(
    "former, name",
    [("complete", "prior"), ("restricted", "half_space"), ("visited", "posterior")],
)
def test_former_names_of_domains_draw_the_same(model, former, name):
    assert model.resolve_mode("single", former) == ("single", name)
    for drawn in (
        [model.draw(4, 0, "single", domain)["capsules"] for domain in (former, name)],
        [model.sample_capsule(1, 4, 0, domain)["capsules"] for domain in (former, name)],
    ):
        np.testing.assert_array_equal(*drawn)
