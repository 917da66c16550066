"""One sampler: the same images in one go, in chunks, and in the rows of a picture."""

import functools

import numpy as np
import pytest

from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.plotting import image_traversal, reconstruction_rows, sample_rows, traversal


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["single", "joint"])
def test_samples_are_the_same_in_any_chunks(model, monkeypatch, mode):
    found = model.sample(12, 3, mode)
    small = functools.partial(map_batches, chunk=5)
    monkeypatch.setattr("keras_capsule_poe.models.base.protocols.map_batches", small)
    parts = model.sample(12, 3, mode)
    np.testing.assert_array_equal(parts["capsules"], found["capsules"])
    np.testing.assert_allclose(parts["images"], found["images"], atol=1e-5)


def test_a_graph_of_fast_convolutions_stays_in_its_context(model, monkeypatch):
    """Rejected: one graph for both, of whichever form came first."""
    traced = []
    decode = type(model).render

    def watched(self, capsules):
        traced.append(self.autoencoder.is_fast)
        return decode(self, capsules)

    monkeypatch.setattr(type(model), "render", watched)
    model.__dict__.pop("_graphs", None)
    with model.fast():
        model.sample(3, 0)
    model.sample(3, 0)
    model.sample(3, 1)
    assert traced == [True, False]


def test_domains_and_seeds(model):
    by_domain = [model.sample(6, 3, "single", d)["capsules"] for d in ("prior", "posterior")]
    assert not np.array_equal(*by_domain)
    # Lengths are those of the same noise.
    lengths = [np.linalg.norm(codes, axis=-1) for codes in by_domain]
    np.testing.assert_allclose(*lengths, atol=1e-6)
    assert not np.array_equal(model.sample(6, 4)["capsules"], by_domain[0])
    with pytest.raises(BadUse, match="n=0"):
        model.sample(0, 3)


@pytest.mark.parametrize("domain", ["prior", "half_space", "posterior"])
def test_a_picture_of_single_capsules_has_a_column_for_each(model, domain):
    rows = sample_rows(model, 3, 7, "single", domain)
    assert len(rows) == 3 and rows[0].shape == (5, 20, 20, 1)
    drawn = model.sample(15, 7, "single", domain)
    for i, row in enumerate(rows):
        for capsule, image in enumerate(row):
            (place,) = np.flatnonzero(drawn["capsule"][5 * i : 5 * i + 5] == capsule)
            np.testing.assert_array_equal(image, drawn["images"][5 * i + place])


def test_a_picture_of_joint_samples_is_in_order(model):
    rows = sample_rows(model, 2, 7, "joint")
    assert [len(row) for row in rows] == [20, 20]
    np.testing.assert_array_equal(np.concatenate(rows), model.sample(40, 7, "joint")["images"])


def test_reconstructions_that_are_images_make_rows(model, random_pixels):
    images = random_pixels(3)
    rows = reconstruction_rows(model, images)
    assert list(rows) == [
        "original", "autoencoder", "divergence_step", "whole_code", "one_capsule", "routing_off",
    ]  # fmt: skip
    np.testing.assert_array_equal(rows["original"], images)
    np.testing.assert_allclose(rows["whole_code"], model(images), atol=1e-5)


def test_many_images_are_reconstructed_a_chunk_at_a_time(random_pixels):
    sizes = []

    class Half:
        def reconstructions(self, images):
            sizes.append(images.shape[0])
            return {"half": (images / 2, images)}

    images = random_pixels(2 * CHUNK + 88, (3, 4, 1))
    np.testing.assert_allclose(reconstruction_rows(Half(), images)["half"], images / 2)
    # Rejected: all of them at once, which took 9 GB of 10,000 digits. The rest, of any size, is
    # traced apart.
    assert sizes == [CHUNK, None]


def test_traversals_go_through_the_code(model, random_pixels):
    image = random_pixels(1)
    code = model.encode(image)
    rows, capsule, dimensions = image_traversal(model, image, steps=5, span=0.1)
    assert capsule == np.argmax(code["probabilities"][0])
    assert len(rows) == model.dim and rows[0].shape == (5, 20, 20, 1)
    for row in rows:
        np.testing.assert_allclose(row[2], model.decode(code["capsules"])["images"][0], atol=1e-4)


def test_of_many_dimensions_those_that_change_the_image_most_are_shown():
    class Weighed:
        dim, CODES = 4, "cube"

        def encode(self, images):
            return {"capsules": images[:, :1, :, 0], "probabilities": images[:, :1, 0, 0]}

        def render(self, capsules):
            return {"images": capsules[..., None] * np.array([1, 3, 0, 2.0], "float32")[:, None]}

    image = np.full((1, 4, 4, 1), 0.75, "float32")
    rows, capsule, dimensions = image_traversal(Weighed(), image, steps=3, span=0.5, rows=2)
    # The first two, or the last, or all: none of these.
    assert dimensions == [1, 3] and capsule == 0 and len(rows) == 2
    np.testing.assert_allclose(rows[0][:, 0, :, 0][:, 1], [0.75, 2.25, 3.0])
    np.testing.assert_allclose(rows[0][:, 0, 0, 0], 0.75)


def test_a_traversal_stops_at_the_faces_of_a_cube():
    code = np.array([[0.1, 0.9]], "float32")
    codes = traversal(code, 0, [0, 1], 3, 0.5, "cube")
    # In the ball it would be shortened, and the other dimension with it.
    np.testing.assert_allclose(codes[0, :, 0], [[0, 0.9], [0.1, 0.9], [0.6, 0.9]], atol=1e-6)
    np.testing.assert_allclose(codes[1, :, 0], [[0.1, 0.4], [0.1, 0.9], [0.1, 1]], atol=1e-6)


def test_a_traversal_turns_a_capsule_and_keeps_its_length():
    code = np.array([[0.1, 0.2, 0.2], [0.3, 0.9, 0]], "float32")
    (codes,) = traversal(code, 0, [1], 5, 0.25)
    assert np.linalg.norm(codes[:, 0], axis=-1) == pytest.approx([0.3] * 5)
    np.testing.assert_allclose(codes[2], code, atol=1e-6)
    np.testing.assert_array_equal(codes[:, 1], np.repeat(code[None, 1], 5, axis=0))
    # On the great circle through the code and the dimension: the others keep their proportions.
    np.testing.assert_allclose(codes[:, 0, 2], 2 * codes[:, 0, 0], rtol=1e-5)
    assert (np.diff(codes[:, 0, 1]) > 0).all()
    (codes,) = traversal(code, 1, [0], 3, 2)
    assert np.linalg.norm(codes[:, 1], axis=-1) == pytest.approx([0.9**0.5] * 3)


def test_a_capsule_of_one_dimension_varies_its_length():
    (codes,) = traversal(np.array([[0.3], [0.5]], "float32"), 1, [0], 3, 0.75)
    assert codes[:, 1, 0] == pytest.approx([-0.25, 0.5, 0.999])
