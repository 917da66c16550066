"""Shared capsules: what the experts leave of an image, coded and kept in files."""

import warnings
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsuleDecoder, CapsulePoE, ProductOfExpertCapsules, load
from keras_capsule_poe.core.numerics import squash, unsquash
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import BadUse, TrainingWarning
from keras_capsule_poe.models.capsule_poe.codes import adapt_shared, conditional_means
from keras_capsule_poe.models.capsule_poe.decoder import match_contrast, most_images
from keras_capsule_poe.models.capsule_poe.layers import SharedCapsules, quadratic

IMAGES, INPUTS, DIM = 400, 6, 4


@pytest.fixture(scope="module")
def residuals():
    """Residuals (N, I, D) with a few strong directions, and capsules (N, 3, 3) of their images."""
    random = np.random.default_rng(0)
    winner = random.integers(3, size=IMAGES)
    capsules = 0.1 * random.normal(size=(IMAGES, 3, 3))
    own = random.normal(size=(IMAGES, 3))
    capsules[np.arange(IMAGES), winner] = 0.9 * own / np.linalg.norm(own, axis=1, keepdims=True)
    strength = np.linspace(3, 0.1, INPUTS * DIM)
    turn = np.linalg.qr(random.normal(size=(INPUTS * DIM, INPUTS * DIM)))[0]
    rows = (random.normal(size=(IMAGES, INPUTS * DIM)) + 0.5 * winner[:, None]) * strength @ turn
    return rows.reshape(IMAGES, INPUTS, DIM).astype("float32"), capsules.astype("float32")


def adapted(residuals, capsules=2, dim=3):
    shared = SharedCapsules(capsules, dim, 3)
    shared.build((None, INPUTS, DIM))
    adapt_shared(shared, *residuals)
    return shared


def test_codes_are_the_projection_on_the_leading_eigenvectors(residuals):
    shared, rows = adapted(residuals), residuals[0].reshape(IMAGES, -1).astype("float64")
    centred = rows - rows.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    projected = centred @ vectors[:, -6:] @ vectors[:, -6:].T + rows.mean(axis=0)
    codes = shared(residuals[0])
    assert codes.shape == (IMAGES, 2, 3)
    np.testing.assert_allclose(
        np.asarray(shared.decode(codes)).reshape(IMAGES, -1), projected, atol=2e-3
    )
    lost = np.square(projected - rows).sum()
    assert 0.01 < lost / np.square(centred).sum() < 0.5


def test_terms_are_all_products():
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    pairs = [x[:, i] * x[:, j] for i in range(3) for j in range(i, 3)]
    np.testing.assert_allclose(
        quadratic(x), np.stack([np.ones(5), *x.T, *pairs], axis=1), rtol=1e-6
    )
    assert quadratic(np.zeros((1, 30))).shape == (1, 1 + 30 + 16 * 17 // 2)


def test_a_quadratic_law_is_found():
    """Codes of two groups with known quadratic means."""
    random = np.random.default_rng(0)
    n, size = 20_000, 4
    x = random.normal(size=(n, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    group = np.arange(n) % 2
    terms = np.asarray(quadratic(x))
    law = random.normal(size=(2, terms.shape[1], size))
    noise = random.normal(size=(2, size, size))
    errors = np.einsum("nkl,nl->nk", noise[group], random.normal(size=(n, size)))
    codes = np.einsum("nt,ntk->nk", terms, law[group]) + errors
    means = conditional_means(codes, terms, group, 2)
    for which in range(2):
        # |x| = 1 makes one term depend on others, so compare means and not coefficients.
        found, true = (terms[group == which] @ each[which] for each in (means, law))
        assert np.abs(found - true).max() < 0.6
        assert np.square(found - true).mean() < 0.01


def test_the_mean_of_a_code_is_that_of_its_capsules_by_squared_length(residuals):
    shared, capsules = adapted(residuals), residuals[1][:5]
    wanted = np.zeros((5, 6))
    for image in range(5):
        squares = np.square(capsules[image].astype("float64")).sum(axis=1)
        for j, own in enumerate(capsules[image]):
            u = own / squares[j] ** 0.5
            products = [u[a] * u[b] for a in range(3) for b in range(a, 3)]
            law = np.asarray(shared.means)[j]
            wanted[image] += squares[j] / squares.sum() * (np.array([1, *u, *products]) @ law)
    found = shared.expected(capsules)
    assert found.shape == (5, 2, 3)
    np.testing.assert_allclose(np.asarray(found).reshape(5, 6), wanted, rtol=1e-4, atol=1e-5)
    # A code of zeros has no winner.
    assert not np.asarray(shared.expected(np.zeros_like(capsules))).any()


def test_an_expert_without_images_has_means_of_zero():
    random = np.random.default_rng(0)
    codes, terms = random.normal(size=(500, 3)), np.ones((500, 1))
    means = conditional_means(codes, terms, np.zeros(500, int), 2)
    np.testing.assert_allclose(means[0], codes.sum(axis=0, keepdims=True) / 503)
    assert not means[1].any()


def test_fewer_images_than_directions_leave_directions_of_zero():
    shared = SharedCapsules(4, 4, 1)
    shared.build((None, INPUTS, DIM))
    random = np.random.default_rng(0)
    values = random.normal(size=(5, INPUTS, DIM)).astype("float32")
    capsules = random.uniform(size=(5, 1, 4)).astype("float32")
    adapt_shared(shared, values, capsules)
    np.testing.assert_allclose(shared.decode(shared(values)), values, atol=1e-4)
    assert np.isfinite(shared.expected(capsules)).all()


def test_the_decoder_adds_shared_capsules_before_the_squash(residuals):
    random = np.random.default_rng(1)
    primaries = CapsulePoE(INPUTS, DIM, kernel_initializer="glorot_uniform")
    decoder = CapsuleDecoder(primaries, shared_capsules=2)
    experts = random.uniform(-0.3, 0.3, (7, 3, 5)).astype("float32")
    x = np.asarray(squash(0.4 * random.normal(size=(7, INPUTS, DIM)).astype("float32")))
    decoder.build((None, 3, 5))
    adapt_shared(decoder.shared, residuals[0], random.uniform(size=(IMAGES, 3, 5)))
    mean = np.asarray(decoder.shared.decode(decoder.shared.expected(experts)))
    alone = np.asarray(unsquash(decoder(experts))) - mean
    assert np.abs(mean - np.asarray(decoder.shared.mean)).max() > 0.1
    residual = np.asarray(unsquash(x)) - alone
    np.testing.assert_allclose(decoder.residual(x, experts), residual, atol=1e-4)
    codes = decoder.code_shared(x, experts)
    wanted = squash(alone + np.asarray(decoder.shared.decode(decoder.shared(residual))))
    np.testing.assert_allclose(decoder(experts, codes), wanted, atol=1e-4)
    # Ten dimensions come nearer to the image than none.
    assert np.square(np.asarray(decoder(experts, codes)) - x).sum() != pytest.approx(
        np.square(np.asarray(decoder(experts)) - x).sum(), rel=1e-3
    )


def test_large_images_do_not_take_all_memory():
    """Residuals of 20,000 images of 64 pixels would take 6 GB, and several copies are made."""
    small, large = (SimpleNamespace(capsules=n, dim=8) for n in (576, 9216))
    assert most_images(small) == 20_000
    assert 1_000 < most_images(large) and 4 * 8 * 9216 * most_images(large) <= 4e8


@pytest.mark.parametrize("number", [-1, 1.5, "8", True])
def test_a_wrong_number_is_refused(number):
    with pytest.raises(ValueError, match="shared_capsules"):
        CapsuleDecoder(CapsulePoE(INPUTS, DIM), shared_capsules=number)


@pytest.fixture(scope="module")
def trained():
    images = load_images("digits", limit=150).train.images
    model = ProductOfExpertCapsules(
        capsules=3,
        autoencoder={"filters": 8},
        encoder={"dim": 4},
        decoder={"shared_capsules": 2},
        compute={"implementation": "reference"},
    )
    with warnings.catch_warnings():
        # A few steps teach little.
        warnings.simplefilter("ignore", TrainingWarning)
        model.fit(images, epochs=4, verbose=0)
    return model, images[:6]


def test_whole_codes_come_nearer_than_experts_alone(trained):
    model, images = trained
    codes, x = model.encode(images), model.to_visible(keras.ops.cast(images, "float32") / 255)
    assert codes.shared.shape == (6, 2, 4)
    made = {
        "whole": model.decode(codes).primary_capsules,
        "experts": model.decode(codes.capsules).primary_capsules,
    }
    error = {name: float(np.square(y - np.asarray(x)).sum()) for name, y in made.items()}
    assert error["whole"] < 0.9 * error["experts"]
    np.testing.assert_allclose(
        model.reconstruct(images).images, model.decode(codes).images, atol=1e-6
    )


def test_a_dict_without_capsules_is_refused(trained):
    with pytest.raises(BadUse, match="must have an array `capsules`. Received: images"):
        trained[0].decode({"images": trained[1]})


def test_draws_of_the_training_codes_have_shared_capsules_and_others_their_mean(trained):
    model = trained[0]
    for options in (
        {"domain": "posterior"},
        {"domain": "posterior", "capsule": 1},
        {"mode": "joint"},
    ):
        drawn = model.sample(5, seed=0, **options)
        assert drawn.shared.shape == (5, 2, 4) and np.ptp(drawn.shared, axis=0).min() > 0
        np.testing.assert_allclose(model.decode(drawn).images, drawn.images, atol=1e-6)
        assert np.abs(model.decode(drawn.capsules).images - drawn.images).max() > 1e-3
    for domain in ("prior", "half_space"):
        drawn = model.sample(5, seed=0, domain=domain)
        assert drawn.shared is None
        whole = {
            "capsules": drawn.capsules,
            "shared": np.asarray(model.decoder.shared.expected(drawn.capsules)),
        }
        np.testing.assert_allclose(model.decode(whole).images, drawn.images, atol=1e-6)


def test_a_whole_code_has_the_shared_capsules_of_its_image(trained):
    """Capsules come first. Rejects blocks in another order."""
    model, _ = trained
    choice, winner = np.array([0.1, 0.6], "float32"), np.array([0, 2], "int32")
    noise = np.ones((2, model.visited.rank), "float32")
    drawn = np.asarray(model.visited(noise, choice, winner))
    code = model.whole_code(noise, choice, winner)
    assert drawn.shape == (2, 3 * 4 + 2 * 4)
    np.testing.assert_allclose(np.reshape(code["shared"], (2, -1)), drawn[:, 12:], rtol=1e-6)
    wanted = drawn[:, :12].reshape(2, 3, 4)
    length = np.linalg.norm(wanted, axis=-1, keepdims=True)
    np.testing.assert_allclose(code["capsules"], wanted * np.minimum(1, 0.98 / length), rtol=1e-5)


def test_draws_have_the_contrast_of_training_images(trained):
    """Rejects draws as pale as a decoder of means makes them."""
    model, _ = trained
    images = load_images("digits", limit=150).train.images
    maps = np.asarray(model.to_features(keras.ops.cast(images, "float32") / 255))
    wanted = np.std(model.from_features(maps), axis=0).mean()
    means, factors = (np.array(part) for part in (model.visited.means, model.visited.factors))

    def contrast():
        return np.std(model.sample(1000, seed=7, domain="posterior").images, axis=0).mean()

    fitted = contrast()
    try:
        for part in (model.visited.means, model.visited.factors):
            part.assign(0.8 * part)
        pale = contrast()
        match_contrast(model, maps)
        again = contrast()
        # Both parts grow alike, and by no more than half.
        grown = np.asarray(model.visited.means) / np.where(means == 0, 1, 0.8 * means)
        assert 1 < grown.max() <= 1.5 + 1e-5 and grown[means != 0].std() < 1e-6
    finally:
        model.visited.means.assign(means)
        model.visited.factors.assign(factors)
    assert pale < 0.97 * min(fitted, again)
    assert abs(again - wanted) < abs(pale - wanted) and abs(fitted - wanted) < abs(pale - wanted)


def test_files_keep_shared_capsules(trained, tmp_path):
    model, images = trained
    model.save(tmp_path / "model.keras")
    copy = load(tmp_path / "model.keras")
    assert copy.settings.decoder.shared_capsules == 2
    for mine, theirs in zip(model.decoder.shared.weights, copy.decoder.shared.weights):
        np.testing.assert_array_equal(mine, theirs)
    drawn = [each.sample(4, seed=1, domain="posterior").images for each in (model, copy)]
    np.testing.assert_allclose(*drawn, atol=1e-6)


def test_a_model_of_a_former_version_has_none():
    settings = ProductOfExpertCapsules().settings
    former = settings.to_dict()
    assert former["decoder"].pop("shared_capsules") == 8
    assert type(settings).from_dict(former).decoder.shared_capsules == 0
