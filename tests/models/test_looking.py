"""Images between, near and unlike others, on tiny models and on the pretrained one.

Rejected: ends that are not the two images; neighbours by another distance; a score that free
energy, darkness or size decides.
"""

import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe.errors import BadUse, DataError
from tests.conftest import pixels


@pytest.fixture(scope="module")
def models(small_product):
    rbm = kcp.ImageBoltzmannMachine(kcp.RestrictedBoltzmannMachine(5), (20, 20, 1))
    rbm.build()
    kernel = np.random.default_rng(0).normal(size=rbm.machine.kernel.shape)
    rbm.machine.kernel.assign(kernel.astype("float32"))
    return small_product(stddev=2.0), rbm


def test_the_ends_are_the_reconstructions_and_codes_are_mixed(models):
    a, b = pixels(3, seed=1), pixels(3, seed=2)
    for model in models:
        found = model.interpolate(a, b, steps=4).images
        assert found.shape == (3, 4, 20, 20, 1)
        for end, images in ((0, a), (-1, b)):
            made = model.reconstruct(images).images
            np.testing.assert_allclose(found[:, end], made, atol=1e-5)
        codes = [model.encode(images).capsules for images in (a, b)]
        third = model.decode((2 * codes[0] + codes[1]) / 3).images
        np.testing.assert_allclose(found[:, 1], third, atol=1e-5)
        one = model.interpolate(a[0], b[0], 4).images
        np.testing.assert_allclose(one, found[0], atol=1e-5)


def test_neighbours_by_the_distance_of_codes(models):
    images, wanted = pixels(12, seed=3), pixels(2, seed=4)
    product, rbm = models
    # Experts before whitening, whose distances are comparable, or the only codes.
    codes = [np.asarray(product.code(x)["experts"]) for x in (images, wanted)]
    for model, (among, own) in (
        (product, codes),
        (rbm, [rbm.encode(x).capsules for x in (images, wanted)]),
    ):
        found = model.nearest(wanted, images, n=5)
        gaps = np.square(among[None] - own[:, None]).sum(axis=(2, 3)) ** 0.5
        np.testing.assert_array_equal(found.index, np.argsort(gaps, axis=1)[:, :5])
        np.testing.assert_allclose(found.distance, np.sort(gaps, axis=1)[:, :5], atol=1e-3)
        one = model.nearest(images[7], images, n=12)
        assert one.index[0] == 7 and sorted(one.index) == list(range(12))
        assert one.distance[0] < 1e-2 and (np.diff(one.distance) >= 0).all()


def test_what_cannot_be_compared_is_refused(models):
    model, two = models[0], pixels(2)
    for call, words in (
        (lambda: model.interpolate(two, two[:1]), "as many of both. Received: 2 and 1 images"),
        (lambda: model.interpolate(two[:0], two[:0]), "one image or more"),
        (lambda: model.interpolate(two, two, steps=1), "`steps` must be an integer of at least 2"),
        (lambda: model.nearest(two[0], two, n=3), "`n` must be an integer from 1 to 2. Received"),
        (lambda: model.nearest(two[0], two[:0]), "one image or more. Received: 1 and 0 images"),
        (lambda: model.nearest(two[:0], two), "one image or more. Received: 0 and 2 images"),
        (lambda: model.outlier_scores(255 * two), "floats in|values from"),
    ):
        with pytest.raises((BadUse, DataError), match=words):
            call()
    assert model.outlier_scores(two[:0]).shape == (0,)


def area(usual, other):
    """Area under the curve of the scores of other images against those of usual ones."""
    return float(np.mean(other[:, None] > usual[None]))


@pytest.mark.long
def test_the_pretrained_model_tells_digits_from_anything_else():
    model = kcp.load("mnist")
    # Digits of other writers, scanned in another way.
    digits = kcp.data.load_images("digits", limit=150).train.images
    random = np.random.default_rng(0)
    shuffled = random.permuted(digits.reshape(150, -1), axis=1).reshape(digits.shape)
    others = {
        "noise": random.integers(0, 256, digits.shape, dtype=np.uint8),
        "shuffled pixels": shuffled,
        "white": np.full_like(digits[:5], 255),
        "black": np.zeros_like(digits[:5]),
        "negatives": 255 - digits,
    }
    usual = model.outlier_scores(digits)
    for name, images in others.items():
        assert area(usual, model.outlier_scores(images)) > 0.95, name
    energy = model.encode(digits).free_energy
    noise = model.encode(others["noise"]).free_energy
    assert area(energy, noise) < 0.1, "free energy would be a score, against the page"


def test_the_curve_compares_groups_of_held_out_images(models, monkeypatch):
    """Rejected: groups of training images, or the same seed twice."""
    from keras_capsule_poe.models.capsule_poe import curve

    product, images, asked = models[0], pixels(48), []

    def groups(model, train, held_out, number, steps, seed):
        asked.append((len(train), len(held_out), number, steps, seed))
        # With four capsules both seeds agree, otherwise not at all.
        return np.arange(12) % number if number == 4 or not seed else np.zeros(12, int)

    monkeypatch.setattr(curve, "_groups", groups)
    assert product.capsule_curve(images, [3, 4], steps=7) == {3: 0.0, 4: 1.0}
    assert asked == [(36, 12, number, 7, seed) for number in (3, 4) for seed in (0, 1)]
    for options, words in (
        ({"capsules": [1]}, "`capsules` must be an integer of at least 2"),
        ({"seeds": 1}, "`seeds` must be an integer of at least 2"),
        ({"steps": 0.5}, "`steps` must be a positive integer"),
    ):
        with pytest.raises(BadUse, match=words):
            product.capsule_curve(images, **options)
    with pytest.raises(BadUse, match="40 images or more. Received: 39 images"):
        product.capsule_curve(images[:39])
