"""Rows of images, each against the model's own methods: samples, reconstructions, chains."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.plotting import (
    chain,
    chain_arrays,
    chain_start,
    moved_capsule,
    reconstruction_rows,
    sample_rows,
    traversal,
)


@pytest.fixture(scope="module")
def model(small_product):
    """A small model whose chains move, and whose maps are strong."""
    # Weak maps would let every chain die away to zero, where the squash has slope zero.
    return small_product(stddev=2.0, scale=1.0, target_length=0.7)


def test_samples_are_the_same_in_any_chunks(model, monkeypatch):
    modes = "single", "joint"
    found = [model.sample(12, 3, mode) for mode in modes]
    small = functools.partial(map_batches, chunk=5)
    monkeypatch.setattr("keras_capsule_poe.models.base.protocols.map_batches", small)
    for mode, whole in zip(modes, found):
        parts = model.sample(12, 3, mode)
        np.testing.assert_array_equal(parts["capsules"], whole["capsules"])
        np.testing.assert_allclose(parts["images"], whole["images"], atol=1e-5)


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
    domains = ("prior", "half_space", "posterior")
    by_domain = [model.sample(6, 3, "single", domain)["capsules"] for domain in domains]
    assert not np.array_equal(*by_domain[::2])
    # Lengths of noise that is only mirrored stay.
    lengths = [np.linalg.norm(codes, axis=-1) for codes in by_domain[:2]]
    np.testing.assert_allclose(*lengths, atol=1e-6)
    assert not np.array_equal(model.sample(6, 4)["capsules"], by_domain[0])
    with pytest.raises(BadUse, match="n=0"):
        model.sample(0, 3)


def test_a_picture_of_single_capsules_has_a_column_for_each(model):
    for domain in ("prior", "half_space", "posterior"):
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
    rows, capsule, names = moved_capsule(model, None, image, steps=5, span=0.1)
    assert capsule == np.argmax(code["probabilities"][0])
    assert rows.shape == (len(names), 5, 20, 20, 1)
    assert sum(name.startswith("dimension ") for name in names) == model.dim
    for row in rows:
        np.testing.assert_allclose(row[2], model.decode(code["capsules"])["images"][0], atol=1e-4)


def test_of_many_dimensions_those_that_change_the_image_most_are_shown():
    class Weighed:
        dim, CODES, image_shape = 4, "cube", (1, 4, 4)

        def encode(self, images):
            return {"capsules": images[:, :1, :, 0], "probabilities": images[:, :1, 0, 0]}

        def render(self, capsules):
            return {"images": capsules[..., None] * np.array([1, 3, 0, 2.0], "float32")[:, None]}

    image = np.full((1, 4, 4, 1), 0.75, "float32")
    rows, capsule, names = moved_capsule(Weighed(), None, image, 2, steps=3, span=0.5)
    # The first two, or the last, or all: none of these.
    assert names == ["dimension 1", "dimension 3"] and capsule == 0 and len(rows) == 2
    np.testing.assert_allclose(rows[0][:, 0, :, 0][:, 1], [0.75, 2.25, 3.0])
    np.testing.assert_allclose(rows[0][:, 0, 0, 0], 0.75)


class Mirror:
    """Decodes the codes of one capsule into themselves, and draws given ones."""

    CODES, capsules, modes = "ball", 1, {}

    def __init__(self, codes):
        self.codes = np.asarray(codes, "float32")[:, None]
        self.dim, self.image_shape = self.codes.shape[-1], (1, self.codes.shape[-1], 1)

    def sample(self, n, seed):
        return types.SimpleNamespace(capsules=self.codes)

    def render(self, capsules):
        return {"images": capsules[..., None]}


def test_a_capsule_moves_around_its_mean_code_which_has_its_mean_length():
    codes = [[0.5, 0.1, 0.2], [0.5, -0.1, -0.4]]
    rows, _, names = moved_capsule(Mirror(codes), 0, None, 2, steps=3, span=0.25)
    # Dimension 2 varies most among the codes, then 1; 0 does not.
    assert names == ["dimension 2", "dimension 1"]
    # A mean of directions is shorter than they are.
    usual = (0.3**0.5 + 0.42**0.5) / 2
    mean = np.array([0.5, 0, -0.1]) * usual / 0.26**0.5
    for row, dimension in zip(rows, (2, 1), strict=True):
        expected = np.stack([mean] * 3)
        expected[:, dimension] += [-0.25, 0, 0.25]
        expected *= usual / np.linalg.norm(expected, axis=-1, keepdims=True)
        np.testing.assert_allclose(row[:, 0, :, 0], expected, atol=1e-6)


def test_codes_that_point_all_ways_have_no_ghost_in_the_middle():
    directions = np.random.default_rng(0).normal(size=(500, 4))
    codes = 0.9 * directions / np.linalg.norm(directions, axis=-1, keepdims=True)
    assert np.linalg.norm(codes.mean(axis=0)) < 0.1
    rows, *_ = moved_capsule(Mirror(codes), 0, None, steps=3)
    lengths = np.linalg.norm(rows[:, :, 0, :, 0], axis=-1)
    assert lengths == pytest.approx(np.full((4, 3), 0.9), rel=1e-5)


def test_a_traversal_stops_at_the_faces_of_a_cube():
    code = np.array([[0.1, 0.9]], "float32")
    codes = traversal(code, 0, np.eye(2), 3, 0.5, "cube")
    # In the ball it would be shortened, and the other dimension with it.
    np.testing.assert_allclose(codes[0, :, 0], [[0, 0.9], [0.1, 0.9], [0.6, 0.9]], atol=1e-6)
    np.testing.assert_allclose(codes[1, :, 0], [[0.1, 0.4], [0.1, 0.9], [0.1, 1]], atol=1e-6)


def test_a_traversal_turns_a_capsule_and_keeps_its_length():
    code = np.array([[0.1, 0.2, 0.2], [0.3, 0.9, 0]], "float32")
    (codes,) = traversal(code, 0, np.eye(3)[[1]], 5, 0.25)
    assert np.linalg.norm(codes[:, 0], axis=-1) == pytest.approx([0.3] * 5)
    np.testing.assert_allclose(codes[2], code, atol=1e-6)
    np.testing.assert_array_equal(codes[:, 1], np.repeat(code[None, 1], 5, axis=0))
    # On the great circle through the code and the dimension: the others keep their proportions.
    np.testing.assert_allclose(codes[:, 0, 2], 2 * codes[:, 0, 0], rtol=1e-5)
    assert (np.diff(codes[:, 0, 1]) > 0).all()
    (codes,) = traversal(code, 1, np.eye(3)[[0]], 3, 2)
    assert np.linalg.norm(codes[:, 1], axis=-1) == pytest.approx([0.9**0.5] * 3)


def test_a_capsule_of_one_dimension_varies_its_length():
    (codes,) = traversal(np.array([[0.3], [0.5]], "float32"), 1, np.eye(1), 3, 0.75)
    assert codes[:, 1, 0] == pytest.approx([-0.25, 0.5, 0.999])


def images(n=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 20, 20, 1)).astype("uint8")


def test_each_step_is_one_of_the_model(model):
    start = chain_start(model, 5, 1)
    states = dict(chain(model, start, 4))
    assert list(states) == [0, 1, 2, 3, 4]
    x = start
    for done in range(5):
        # Graph and eager execution round float32 differently.
        np.testing.assert_allclose(states[done], x, rtol=1e-4, atol=1e-6)
        x = np.asarray(model.chain_step(x))
    # It moves, so that a chain that stands still would not pass.
    assert all(np.abs(states[done + 1] - states[done]).max() > 1e-3 for done in range(4))


def test_every_so_many_steps_and_the_last(model):
    start = chain_start(model, 2, 1)
    all_states = dict(chain(model, start, 7))
    cases = (6, 3, [0, 3, 6]), (7, 3, [0, 3, 6, 7]), (2, 5, [0, 2]), (0, 1, [0])
    for steps, every, shown in cases:
        some = dict(chain(model, start, steps, every))
        assert list(some) == shown
        for done, x in some.items():
            np.testing.assert_array_equal(x, all_states[done])


def test_chains_do_not_depend_on_the_chunk_they_are_in(model, monkeypatch):
    start = chain_start(model, 5, 1)
    whole = chain_arrays(model, start, 2)
    monkeypatch.setattr("keras_capsule_poe.plotting.CHUNK", 2)
    parts = chain_arrays(model, start, 2)
    # Float32 sums over batches of other sizes.
    np.testing.assert_allclose(parts["images"], whole["images"], atol=1e-5)


def test_arrays_are_the_decoded_states(model):
    start = chain_start(model, 5, 0, images())
    found = chain_arrays(model, start, 3, 2)
    np.testing.assert_array_equal(found["step"], [0, 2, 3])
    assert found["images"].shape == (3, 5, 20, 20, 1) and found["images"].dtype == np.float32
    assert found["images"].min() >= 0 and found["images"].max() <= 1
    # The first state are the images, as their features show them.
    features = model.to_features(images() / np.float32(255))
    np.testing.assert_allclose(found["images"][0], model.from_features(features), atol=1e-4)
    states = dict(chain(model, start, 3))
    np.testing.assert_allclose(found["images"][1], model.from_visible(states[2]), atol=1e-5)


def test_starts_from_bytes_and_from_pixels(model):
    expected = np.asarray(model.to_visible(images() / np.float32(255)))
    for shown in (images(), images() / np.float32(255)):
        np.testing.assert_allclose(chain_start(model, 5, 0, shown), expected, rtol=1e-4, atol=1e-5)


def test_noise_depends_on_the_seed_alone(model):
    first = chain_start(model, 3, 1)
    np.testing.assert_array_equal(chain_start(model, 3, 1), first)
    assert np.abs(first - chain_start(model, 3, 2)).max() > 0.01


class Coins:
    """A chain of coins that forgets all: each step is a throw."""

    CHAINS = ("gibbs", "meanfield")

    def chain_step(self, x, seed=None):
        if seed is None:
            return 0 * x + 0.5
        draws = tf.random.stateless_uniform(tf.shape(x), seed=tf.stack([seed, 0]))
        return tf.cast(draws < 0.5, x.dtype)


def test_gibbs_steps_draw_anew_for_each_chain_and_step(monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.plotting.CHUNK", 50)
    x = np.zeros((200, 40), "float32")
    states = dict(chain(Coins(), x, 3, seed=1))
    assert set(np.unique(states[1])) == {0, 1}
    # 8000 fair coins: six deviations, once in 10^9.
    assert states[1].mean() == pytest.approx(0.5, abs=6 * 0.5 / np.sqrt(8000))
    # Two of 200 rows of 40 coins are alike with probability 2e-8.
    assert len({row.tobytes() for row in states[1]}) == 200
    assert np.mean(states[1] == states[2]) == pytest.approx(0.5, abs=6 * 0.5 / np.sqrt(8000))
    np.testing.assert_array_equal(dict(chain(Coins(), x, 3, seed=1))[3], states[3])
    assert not np.array_equal(dict(chain(Coins(), x, 3, seed=2))[3], states[3])
    np.testing.assert_array_equal(dict(chain(Coins(), x, 1, kind="meanfield"))[1], 0.5)


def test_chains_that_cannot_be_run(model):
    for n, steps, every in ((0, 1, 1), (2, -1, 1), (2, 1, 0)):
        with pytest.raises(BadUse, match=f"{n} starts, steps={steps}, every={every}, burn_in=0"):
            list(chain(model, np.zeros((n, model.primary.capsules, 4), "float32"), steps, every))


def test_kinds_that_the_model_does_not_have(model):
    with pytest.raises(BadUse, match="one of 'meanfield'. Received: kind='gibbs'"):
        next(chain(model, chain_start(model, 1, 0), 1, kind="gibbs"))

    class Still:
        CHAINS = ()

    with pytest.raises(BadUse, match="the model has no chain"):
        next(chain(Still(), np.zeros((1, 1)), 1))
