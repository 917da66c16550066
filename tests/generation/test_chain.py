"""The Markov chain: its steps are those of the experts, its noise is as long as features are."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    CapsuleDecoder,
    CapsuleEncoder,
    CapsulePoE,
    ConvAutoencoder,
    PrimaryCapsules,
    ProductOfExpertCapsules,
)
from keras_capsule_poe.functions import unsquash
from keras_capsule_poe.generation.chain import chain, chain_arrays, data_start, noise_start

TARGET = 0.7


def images(n=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 20, 20, 1)).astype("uint8")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    autoencoder = ConvAutoencoder(filters=8)
    autoencoder.build((None, 20, 20, 1))
    primary = PrimaryCapsules(4, target_length=TARGET)
    primary.adapt([np.asarray(autoencoder.encode(images(50) / np.float32(255)))])
    # Weak maps would let every chain die away to zero, where the squash has slope zero.
    options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=2.0, seed=2)}
    encoder = CapsuleEncoder(CapsulePoE(3, 2, use_routing_bias=True, **options))
    decoder = CapsuleDecoder(CapsulePoE(primary.capsules, 4, **options), keep=1)
    product = ProductOfExpertCapsules(autoencoder, primary, encoder, decoder)
    product.build((None, 20, 20, 1))
    return product


def test_each_step_is_one_of_the_experts(model):
    start = noise_start(model, 5, 1)
    states = dict(chain(model, start, 4))
    assert list(states) == [0, 1, 2, 3, 4]
    x = start
    for done in range(5):
        # Graph and eager execution round float32 differently.
        np.testing.assert_allclose(states[done], x, rtol=1e-4, atol=1e-6)
        x = np.asarray(model.encoder.experts.mean_field_step(x))
    # It moves, so that a chain that stands still would not pass.
    assert all(np.abs(states[done + 1] - states[done]).max() > 1e-3 for done in range(4))


@pytest.mark.parametrize(
    "steps, every, shown", [(6, 3, [0, 3, 6]), (7, 3, [0, 3, 6, 7]), (2, 5, [0, 2]), (0, 1, [0])]
)
def test_every_so_many_steps_and_the_last(model, steps, every, shown):
    start = noise_start(model, 2, 1)
    all_states = dict(chain(model, start, steps))
    some = dict(chain(model, start, steps, every))
    assert list(some) == shown
    for done, x in some.items():
        np.testing.assert_array_equal(x, all_states[done])


def test_chains_do_not_depend_on_the_chunk_they_are_in(model, monkeypatch):
    start = noise_start(model, 5, 1)
    whole = chain_arrays(model, start, 2)
    monkeypatch.setattr("keras_capsule_poe.generation.chain.CHUNK", 2)
    parts = chain_arrays(model, start, 2)
    # Float32 sums over batches of other sizes.
    np.testing.assert_allclose(parts["images"], whole["images"], atol=1e-5)


def test_arrays_are_the_decoded_states(model):
    start = data_start(model, images())
    found = chain_arrays(model, start, 3, 2)
    np.testing.assert_array_equal(found["step"], [0, 2, 3])
    assert found["images"].shape == (3, 5, 20, 20, 1) and found["images"].dtype == np.float32
    assert found["images"].min() >= 0 and found["images"].max() <= 1
    # The first state are the images, as the autoencoder shows them.
    shown = np.asarray(model.autoencoder(images() / np.float32(255)))
    np.testing.assert_allclose(found["images"][0], shown, atol=1e-4)
    states = dict(chain(model, start, 3))
    np.testing.assert_allclose(found["images"][1], model.from_primary(states[2]), atol=1e-5)


def test_data_start_takes_bytes_and_pixels(model):
    expected = np.asarray(model.to_primary(images() / np.float32(255)))
    for shown in (images(), images() / np.float32(255)):
        np.testing.assert_allclose(data_start(model, shown), expected, rtol=1e-4, atol=1e-5)


def test_noise_is_eight_times_as_long_as_the_training_features(model):
    n, capsules, dim = 20_000, model.primary.capsules, 4
    z = np.asarray(unsquash(noise_start(model, n, 3)), "float64")
    assert z.shape == (n, capsules, dim)
    squares = np.square(z).sum(axis=-1)
    # The mean square of n I D Gaussians has a relative deviation of sqrt(2 / (n I D)), its root
    # half of that; five of them are passed by chance once in a million seeds.
    deviation = 0.5 * np.sqrt(2 / (n * capsules * dim))
    assert np.sqrt(squares.mean()) == pytest.approx(8 * TARGET, rel=5 * deviation)
    # A Gaussian has kurtosis 3, estimated with variance 24 / size.
    kurtosis = np.mean(z**4) / np.mean(z**2) ** 2
    assert kurtosis == pytest.approx(3, abs=5 * np.sqrt(24 / z.size))
    features = data_start(model, images(50))
    lengths = np.square(np.asarray(unsquash(features), "float64")).sum(axis=-1)
    # What the primary capsules were adapted to: exact but for float32.
    assert np.sqrt(lengths.mean()) == pytest.approx(TARGET, rel=1e-3)


def test_noise_depends_on_the_seed_alone(model):
    np.testing.assert_array_equal(noise_start(model, 3, 1), noise_start(model, 3, 1))
    assert np.abs(noise_start(model, 3, 1) - noise_start(model, 3, 2)).max() > 0.01


@pytest.mark.parametrize("n, steps, every", [(0, 1, 1), (2, -1, 1), (2, 1, 0)])
def test_chains_that_cannot_be_run(model, n, steps, every):
    with pytest.raises(ValueError, match=f"{n} starts, steps={steps}, every={every}"):
        list(chain(model, np.zeros((n, model.primary.capsules, 4), "float32"), steps, every))
