"""Codes with an amplitude: their coordinates, what they leave as it was, draws and files."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats

import keras_capsule_poe as kcp
from keras_capsule_poe import CapsuleDecoder, CapsuleEncoder, CapsulePoE, Whitening, registry
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.models.capsule_poe.layers import (
    LARGEST_AMPLITUDE,
    whitened_vectors,
    with_amplitude,
)
from keras_capsule_poe.serving import export_saved_model

J, E = 5, 3


@pytest.fixture(scope="module")
def model(small_product):
    return small_product(amplitude=True)


def images(n=6, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, 20, 20, 1)).astype("float32")


def test_a_unit_vector_is_that_of_homogeneous_coordinates():
    v = np.random.default_rng(0).normal(size=(50, 4))
    plain = np.concatenate([v / 2, np.ones((50, 1))], axis=1)
    plain /= np.sqrt((plain**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(with_amplitude(v.astype("float32")), plain, atol=1e-6)


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.999])
def test_a_code_of_any_length_gives_back_its_vector(p):
    v = np.random.default_rng(0).uniform(-1.5, 1.5, size=(7, J, E)).astype("float32")
    v /= np.maximum(1, np.linalg.norm(v, axis=-1, keepdims=True) / (1.49 * E**0.5))
    np.testing.assert_allclose(whitened_vectors(p * with_amplitude(v)), v, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("last", [1e-3, 0.0, -0.5])
def test_what_lies_far_outside_is_drawn_in_to_the_largest_amplitude(last):
    x = np.array([[0.3, 0.4, last]], "float32")
    v = np.asarray(whitened_vectors(x))[0]
    np.testing.assert_allclose(v, LARGEST_AMPLITUDE * 2**0.5 * np.array([0.6, 0.8]), rtol=1e-6)
    assert np.isfinite(whitened_vectors(np.zeros((2, 3), "float32"))).all()


def test_probability_and_expert_are_found_in_a_code():
    """The code loses nothing: z = m + C^(1/2) v, and the length is |z|^2/(1 + |z|^2)."""
    random = np.random.default_rng(1)
    z = random.normal(size=(400, J, E)) * [1.0, 0.5, 0.2] + 0.4
    whitening = Whitening(amplitude=True)
    whitening.build((None, J, E))
    whitening.adapt([z[:, j] for j in range(J)])
    x = np.asarray(whitening(z), "float64")
    assert x.shape == (400, J, E + 1) == whitening.compute_output_shape((400, J, E))
    squares = (z**2).sum(axis=-1)
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), squares / (1 + squares), atol=1e-5)
    v = np.asarray(whitened_vectors(x), "float64")
    inverse = np.linalg.inv(np.asarray(whitening.whitening, "float64"))
    again = np.asarray(whitening.center) + np.einsum("jef,njf->nje", inverse, v)
    near = np.linalg.norm(v, axis=-1) < 0.999 * LARGEST_AMPLITUDE * E**0.5
    assert 0.8 < near.mean() < 1
    np.testing.assert_allclose(again[near], z[near], atol=1e-4)
    # After whitening the covariance is the identity, so the amplitude is one in the mean square.
    turned = np.einsum(
        "jef,njf->nje", np.asarray(whitening.whitening), z - np.asarray(whitening.center)
    )
    np.testing.assert_allclose((turned**2).sum(axis=-1).mean(axis=0) / E, 1, rtol=0.01)
    np.testing.assert_allclose(v[near], turned[near], atol=1e-4)


def test_energy_and_training_do_not_change():
    """The energy is a function of z, so the experts learn the same, bit for bit."""
    x = np.random.default_rng(0).uniform(0, 0.4, size=(40, 6, 4)).astype("float32")
    trained = []
    for amplitude in (False, True):
        start = keras.initializers.RandomNormal(stddev=0.3, seed=1)
        model = CapsuleEncoder(CapsulePoE(J, E, kernel_initializer=start), amplitude=amplitude)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.5), jit_compile=False)
        model.fit(x, batch_size=8, epochs=2, shuffle=False, verbose=0)
        trained.append(model)
    plain, other = trained
    np.testing.assert_array_equal(plain.experts.kernel, other.experts.kernel)
    np.testing.assert_array_equal(plain.experts.free_energy(x), other.experts.free_energy(x))
    np.testing.assert_allclose(
        np.linalg.norm(plain(x), axis=-1), np.linalg.norm(other(x), axis=-1), rtol=1e-5
    )
    assert other(x).shape == (40, J, E + 1) == other.compute_output_shape((40, 6, 4))


def test_an_image_is_linear_in_the_vector_of_one_active_capsule():
    """Before the squash, and of the probability as well."""
    decoder = CapsuleDecoder(CapsulePoE(6, 4), offset=True, activity=2.0, amplitude=True)
    decoder.build((None, J, E + 1))
    decoder.primaries.kernel.assign(np.random.default_rng(0).normal(size=(J, 6, 4, E + 2)))
    v = np.random.default_rng(1).normal(size=(2, E)).astype("float32")

    def z(v, p):
        code = np.zeros((1, J, E + 1), "float32")
        code[0, 2] = p * with_amplitude(v)
        return np.asarray(decoder.primaries.route(decoder.weigh(code)).z)

    middle = (z(v[0], 0.3) + z(v[1], 0.9)) / 2
    np.testing.assert_allclose(z(v.mean(axis=0), 0.6), middle, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 3])
def test_the_prior_is_the_plain_gaussian(dim):
    """The mean of 1/sqrt(1 + r^2), by quadrature over the chi-square density of E r^2."""
    whitening = Whitening(amplitude=True)
    whitening.build((None, 1, dim))
    v = np.random.default_rng(0).normal(size=(200_000, dim)).astype("float32")
    drawn = np.asarray(with_amplitude(v))[:, -1]
    density = stats.chi2(dim).pdf
    mean, _ = integrate.quad(lambda s: density(s) / np.sqrt(1 + s / dim), 0, np.inf)
    square, _ = integrate.quad(lambda s: density(s) / (1 + s / dim), 0, np.inf)
    error = np.sqrt((square - mean**2) / len(v))
    assert abs(drawn.mean() - mean) < 4 * error


@pytest.mark.parametrize("domain", ["prior", "half_space", "posterior"])
def test_single_codes(model, domain):
    random = np.random.default_rng(0)
    noise = random.normal(size=(300, E)).astype("float32")
    choice, capsule = random.uniform(size=300), np.arange(300) % J
    codes = model.single_code(noise, choice.astype("float32"), capsule.astype("int32"), domain)
    own = np.asarray(codes)[np.arange(300), capsule]
    assert codes.shape == (300, J, E + 1) and np.count_nonzero(codes) <= own.size
    squares = (noise**2).sum(axis=1)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), squares / (1 + squares), rtol=1e-4)
    v = np.asarray(whitened_vectors(own))
    inside = np.linalg.norm(noise, axis=1) < 0.999 * LARGEST_AMPLITUDE * E**0.5
    assert inside.mean() > 0.8
    if domain == "prior":
        np.testing.assert_allclose(v[inside], noise[inside], rtol=1e-3, atol=1e-4)
    if domain == "half_space":
        np.testing.assert_allclose(np.abs(v)[inside], np.abs(noise)[inside], rtol=1e-3, atol=1e-4)
        mean = np.asarray(model.mean_direction)[capsule, :E]
        assert ((v * mean).sum(axis=1) >= 0).all()
    if domain == "posterior":
        # The components of the fixture have a deviation of 0.01 around their means.
        means = np.asarray(model.visited.means)[capsule]
        nearest = np.linalg.norm(v[:, None] - means, axis=-1).min(axis=1)
        assert nearest.max() < 0.1


@pytest.mark.long
def test_codes_go_around_and_through_files(model, tmp_path):
    found = model.encode(images())
    assert found.capsules.shape == (6, J, E + 1)
    np.testing.assert_allclose(
        np.linalg.norm(found.capsules, axis=-1), found.probabilities, rtol=1e-5
    )
    model.save(tmp_path / "model.keras")
    again = kcp.load(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.encode(images()).capsules, found.capsules)
    assert again.amplitude and again.dim == E + 1
    for mode, domain in (("single", "posterior"), ("single", "prior"), ("joint", None)):
        drawn = model.sample(7, 1, mode, domain)
        assert drawn.capsules.shape == (7, J, E + 1) and np.isfinite(drawn.images).all()
        np.testing.assert_array_equal(again.sample(7, 1, mode, domain).images, drawn.images)
    version = export_saved_model(model, tmp_path / "saved", {})
    served = tf.saved_model.load(str(version))
    code = served.encode(images())["capsules"]
    np.testing.assert_allclose(code, found.capsules, atol=1e-5)
    decoded = served.decode(code)["images"]
    np.testing.assert_allclose(decoded, model.decode(found.capsules).images, atol=1e-5)
    model.plot_capsule(1).savefig(tmp_path / "capsule.png")


@pytest.mark.long
def test_a_whole_model_trains():
    digits = kcp.data.load_images("digits", limit=300).train.images

    def built(amplitude):
        encoder = {"dim": 6, "amplitude": amplitude}
        return kcp.ProductOfExpertCapsules(
            recipe="detail", autoencoder={"filters": 8}, capsules=4, encoder=encoder
        )

    model, plain = built(True), built(False)
    history = model.fit(digits, epochs=20, verbose=0)
    assert model.amplitude and model.encode(digits[:3]).capsules.shape == (3, 4, 7)
    before = plain.fit(digits, epochs=20, verbose=0)
    errors = [np.min(each["decoder"].history["val_relative_error"]) for each in (before, history)]
    assert errors[1] < 0.95 * errors[0]


def test_an_amplitude_needs_whitening():
    with pytest.raises(ConfigError, match="encoder.amplitude needs encoder.whitening"):
        registry.settings("capsules", "detail", whitening=False).check()
