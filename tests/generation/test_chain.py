"""The Markov chain: its steps are those of the model, its starts are noise or images."""

import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.sampling import chain, chain_arrays, start_from_images, start_from_noise


def images(n=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 20, 20, 1)).astype("uint8")


def test_each_step_is_one_of_the_model(model):
    start = start_from_noise(model, 5, 1)
    states = dict(chain(model, start, 4))
    assert list(states) == [0, 1, 2, 3, 4]
    x = start
    for done in range(5):
        # Graph and eager execution round float32 differently.
        np.testing.assert_allclose(states[done], x, rtol=1e-4, atol=1e-6)
        x = np.asarray(model.chain_step(x))
    # It moves, so that a chain that stands still would not pass.
    assert all(np.abs(states[done + 1] - states[done]).max() > 1e-3 for done in range(4))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "steps, every, shown", [(6, 3, [0, 3, 6]), (7, 3, [0, 3, 6, 7]), (2, 5, [0, 2]), (0, 1, [0])]
)
def test_every_so_many_steps_and_the_last(model, steps, every, shown):
    start = start_from_noise(model, 2, 1)
    all_states = dict(chain(model, start, steps))
    some = dict(chain(model, start, steps, every))
    assert list(some) == shown
    for done, x in some.items():
        np.testing.assert_array_equal(x, all_states[done])


def test_chains_do_not_depend_on_the_chunk_they_are_in(model, monkeypatch):
    start = start_from_noise(model, 5, 1)
    whole = chain_arrays(model, start, 2)
    monkeypatch.setattr("keras_capsule_poe.sampling.CHUNK", 2)
    parts = chain_arrays(model, start, 2)
    # Float32 sums over batches of other sizes.
    np.testing.assert_allclose(parts["images"], whole["images"], atol=1e-5)


def test_arrays_are_the_decoded_states(model):
    start = start_from_images(model, images())
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
        np.testing.assert_allclose(start_from_images(model, shown), expected, rtol=1e-4, atol=1e-5)


def test_noise_depends_on_the_seed_alone(model):
    first = start_from_noise(model, 3, 1)
    np.testing.assert_array_equal(start_from_noise(model, 3, 1), first)
    assert np.abs(first - start_from_noise(model, 3, 2)).max() > 0.01


class Coins:
    """A chain of coins that forgets all: each step is a throw."""

    CHAINS = ("gibbs", "meanfield")

    def chain_step(self, x, seed=None):
        if seed is None:
            return 0 * x + 0.5
        draws = tf.random.stateless_uniform(tf.shape(x), seed=tf.stack([seed, 0]))
        return tf.cast(draws < 0.5, x.dtype)


def test_gibbs_steps_draw_anew_for_each_chain_and_step(monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.sampling.CHUNK", 50)
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


@pytest.mark.parametrize("n, steps, every", [(0, 1, 1), (2, -1, 1), (2, 1, 0)])
def test_chains_that_cannot_be_run(model, n, steps, every):
    with pytest.raises(BadUse, match=f"{n} starts, steps={steps}, every={every}, burn_in=0"):
        list(chain(model, np.zeros((n, model.primary.capsules, 4), "float32"), steps, every))


def test_kinds_that_the_model_does_not_have(model):
    with pytest.raises(BadUse, match="one of 'meanfield'. Received: kind='gibbs'"):
        next(chain(model, start_from_noise(model, 1, 0), 1, kind="gibbs"))

    class Still:
        CHAINS = ()

    with pytest.raises(BadUse, match="the model has no chain"):
        next(chain(Still(), np.zeros((1, 1)), 1))
