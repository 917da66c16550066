"""The whole model: from images to capsules and back."""

import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import ProductOfExpertCapsules, Whitening, load
from keras_capsule_poe.core.labels import winner_alone, winners
from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.functions import free_energy, squash, unsquash

J, E = 5, 3
SHAPE = (20, 22, 1)


def images(n=4, shape=SHAPE, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, *shape)).astype("float32")


@pytest.fixture(scope="module")
def model(small_product):
    return small_product(SHAPE)


def test_encode(model):
    got = model.encode(images())
    assert set(got) == {"capsules", "probabilities", "free_energy"}
    assert set(model.encode(keras.ops.array(images()))) == {"capsules", "probabilities"}
    assert got["capsules"].shape == (4, J, E) and got["probabilities"].shape == (4, J)
    lengths = np.linalg.norm(got["capsules"], axis=-1)
    # float32.
    np.testing.assert_allclose(got["probabilities"], lengths, rtol=1e-5)
    assert lengths.max() < 1
    x = model.primary(model.autoencoder.encode(images()))
    np.testing.assert_allclose(got["capsules"], model.encoder(x), rtol=1e-5, atol=1e-6)


def test_a_code_with_features_is_both(model):
    found = model.featured_code(images())
    np.testing.assert_array_equal(found.pop("features"), model.to_features(images()))
    expected = model.code(images())
    assert set(found) == set(expected)
    for name, rows in expected.items():
        np.testing.assert_array_equal(found[name], rows)


def test_decode(model):
    codes = model.encode(images())["capsules"]
    got = model.decode(codes)
    assert set(got) == {"images", "primary_capsules"}
    assert set(model.decode(keras.ops.array(codes))) == {"images"}
    assert got["images"].shape == (4, 20, 22, 1) and got["images"].dtype == "float32"
    assert 0 <= np.min(got["images"]) and np.max(got["images"]) <= 1
    features = model.primary.to_features(model.decoder(codes))
    np.testing.assert_allclose(got["images"], model.autoencoder.decode(features), atol=1e-6)


def test_reconstruct_and_call(model):
    got = model.reconstruct(images())
    assert set(got) == {"images", "primary_capsules"}
    assert got["primary_capsules"].shape == (4, model.primary.capsules, 4)
    decoded = model.decode(model.encode(images())["capsules"])["images"]
    np.testing.assert_allclose(got["images"], decoded, atol=1e-6)
    np.testing.assert_allclose(model(images()), decoded, atol=1e-6)
    assert model.compute_output_shape((None, 20, 22, 1)) == (None, 20, 22, 1)


def test_free_energy(model):
    got = model.free_energy(images())
    assert set(got) == {"free_energy"} and got["free_energy"].shape == (4,)
    expected = model.encoder.experts.free_energy(model.to_visible(images()))
    np.testing.assert_allclose(got["free_energy"], expected, rtol=1e-5)
    # Through the codes: z is the unsquashed capsule.
    z = unsquash(model.encode(images())["capsules"])
    np.testing.assert_allclose(got["free_energy"], free_energy(z), rtol=1e-4)
    assert np.max(got["free_energy"]) < 0


def test_the_chain_moves_on_primary_capsules(model):
    x = model.to_visible(images())
    step = model.chain_step(x)
    assert step.shape == x.shape
    # One pass of the experts is one step of the reconstructions.
    decoded, original = model.reconstructions(images())["divergence_step"]
    np.testing.assert_allclose(decoded, model.from_visible(step), atol=1e-6)
    assert np.array_equal(original, images())
    # Without the experts in between, what is left is the autoencoder.
    through = model.from_visible(x)
    np.testing.assert_allclose(through, model.autoencoder(images()), atol=1e-4)


def test_reconstructions_are_those_of_the_methods(model):
    found = model.reconstructions(images())
    assert set(model.upper_bounds) <= set(found)
    codes = np.asarray(model.encode(images())["capsules"])
    alone = codes.copy()
    lengths = np.linalg.norm(codes, axis=-1)
    alone[lengths < lengths.max(axis=1, keepdims=True)] = 0
    unrouted = model.code(images(), coefficients="uniform")["capsules"]
    expected = {
        "autoencoder": model.autoencoder(images()),
        "whole_code": model(images()),
        "one_capsule": model.decode(alone)["images"],
        "routing_off": model.decode(unrouted)["images"],
    }
    for name, image in expected.items():
        # The same float32 operations, eagerly.
        np.testing.assert_allclose(found[name][0], image, atol=1e-5, err_msg=name)
    decoded, original = found["primary_capsules"]
    np.testing.assert_allclose(decoded, model.reconstruct(images())["primary_capsules"], atol=1e-5)
    np.testing.assert_allclose(original, model.to_visible(images()), atol=1e-6)


def test_routing_steps_start_equal_and_end_with_the_code(model):
    x = keras.ops.array(images())
    found = {name: np.asarray(value) for name, value in model.routing_steps(x).items()}
    height, width = model.autoencoder.feature_shape[:2]
    assert found["coefficients"].shape == (4, 4, height, width, J)
    assert np.ptp(found["coefficients"][:, 0], axis=(0, 1, 2)).max() < 1e-6
    np.testing.assert_allclose(found["coefficients"][:, -1], model.coupling_maps(x), rtol=1e-5)
    p = model.encode(images())["probabilities"]
    np.testing.assert_allclose(found["probabilities"][:, -1], p, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_uniform_coefficients_are_the_mean_of_the_votes(small_product, implementation):
    model = small_product(SHAPE, implementation=implementation)
    experts = model.encoder.experts
    x = np.asarray(model.to_visible(images()), "float64")
    before = np.array(model.code(images())["experts"])
    # scale = 2 is what the coefficients of an expert sum to.
    votes = np.einsum("ijed,bid->bje", np.asarray(experts.kernel, "float64"), x)
    z = (2 / x.shape[1] if experts.options.softmax_over == "inputs" else 2 / J) * votes
    found = model.code(images(), coefficients="uniform")
    # float32 sums over all primary capsules.
    np.testing.assert_allclose(found["experts"], squash(z.astype("float32")), rtol=1e-3, atol=1e-5)
    assert np.abs(before - found["experts"]).max() > 1e-3
    # Nothing of the model is changed by it.
    assert np.array_equal(model.code(images())["experts"], before)
    with pytest.raises(ValueError, match="coefficients='off'"):
        model.code(images(), coefficients="off")


def test_noise_of_a_chain_is_eight_times_as_long_as_the_features(small_product, random_pixels):
    model = small_product(target_length=0.7)
    n, capsules, dim = 20_000, model.primary.capsules, 4
    z = np.asarray(unsquash(model.visible_noise(n, 3)), "float64")
    assert z.shape == (n, capsules, dim)
    squares = np.square(z).sum(axis=-1)
    # The mean square of n I D Gaussians has a relative deviation of sqrt(2 / (n I D)), its root
    # half of that; five of them are passed by chance once in a million seeds.
    deviation = 0.5 * np.sqrt(2 / (n * capsules * dim))
    assert np.sqrt(squares.mean()) == pytest.approx(8 * 0.7, rel=5 * deviation)
    # A Gaussian has kurtosis 3, estimated with variance 24 / size.
    kurtosis = np.mean(z**4) / np.mean(z**2) ** 2
    assert kurtosis == pytest.approx(3, abs=5 * np.sqrt(24 / z.size))
    features = model.to_visible(random_pixels(50))
    lengths = np.square(np.asarray(unsquash(features), "float64")).sum(axis=-1)
    # What the primary capsules were adapted to: exact but for float32.
    assert np.sqrt(lengths.mean()) == pytest.approx(0.7, rel=1e-3)


def test_winners():
    codes = np.array([[[0.1, 0.2], [0.0, 0.9]], [[0.5, 0.5], [0.3, 0.0]]], "float32")
    lengths = np.linalg.norm(codes, axis=-1)
    for of in (codes, lengths, tf.constant(codes), tf.constant(lengths)):
        np.testing.assert_array_equal(winners(of), [1, 0])
    expected = codes.copy()
    expected[0, 0] = expected[1, 1] = 0
    np.testing.assert_array_equal(winner_alone(codes), expected)


@pytest.mark.long
def test_dynamic_batch_and_count(model):
    @tf.function(input_signature=[tf.TensorSpec([None, 20, 22, 1])], autograph=False)
    def ends(batch):
        return {
            **model.reconstruct(batch),
            **model.encode(batch),
            **model.free_energy(batch),
        }

    @tf.function(input_signature=[tf.TensorSpec([], "int32"), tf.TensorSpec([], "int64")])
    def sample(n, seed):
        return model.sample(n, seed)

    for n in (1, 7):
        got = ends(images(n))
        expected = {
            **model.reconstruct(images(n)),
            **model.encode(images(n)),
            **model.free_energy(images(n)),
        }
        for name in expected:
            # The same float32 operations in a graph.
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-4, atol=1e-5)
        drawn = sample(n, 3)
        np.testing.assert_allclose(drawn["capsules"], model.sample(n, 3)["capsules"], atol=1e-6)
        assert drawn["images"].shape == (n, 20, 22, 1)


@pytest.mark.some(2)
@pytest.mark.parametrize("shape", [(20, 22, 1), (21, 34, 3)])
def test_save_and_load(small_product, shape, tmp_path):
    model = small_product(shape)
    model.save(tmp_path / "product.keras")
    again = keras.saving.load_model(tmp_path / "product.keras")
    batch = images(3, shape)
    for name in ("encode", "reconstruct", "free_energy"):
        got, expected = getattr(again, name)(batch), getattr(model, name)(batch)
        for key in expected:
            assert np.array_equal(got[key], expected[key])
    for domain in ("half_space", "posterior"):
        got, expected = again.sample(4, 5, domain=domain), model.sample(4, 5, domain=domain)
        assert np.array_equal(got["images"], expected["images"])
    # As JSON, which knows no tuples.
    assert json.dumps(again.get_config()) == json.dumps(model.get_config())
    assert keras.saving.serialize_keras_object(again)["registered_name"] == (
        "keras_capsule_poe>ProductOfExpertCapsules"
    )


@pytest.mark.parametrize("amplitude", [False, True])
def test_a_file_that_names_an_amplitude_is_refused_if_codes_have_one(model, amplitude, tmp_path):
    settings = ProductOfExpertCapsules().settings.to_dict()
    settings["encoder"]["amplitude"] = amplitude
    lost = ProductOfExpertCapsules.SETTINGS.from_dict(settings).lost
    assert lost == ({"encoder.amplitude": True} if amplitude else {})
    model.save(tmp_path / "new.keras")
    former = tmp_path / "former.keras"
    with zipfile.ZipFile(tmp_path / "new.keras") as new, zipfile.ZipFile(former, "w") as old:
        config = json.loads(new.read("config.json"))
        for part in ("encoder", "decoder"):
            config["config"][part]["config"]["amplitude"] = amplitude
        for name in new.namelist():
            is_config = name == "config.json"
            old.writestr(name, json.dumps(config) if is_config else new.read(name))
    if amplitude:
        received = r"`amplitude` must be False: .* Received: amplitude=True\. Load .* version .*$"
        with pytest.raises(RunFailed, match=received):
            load(former)
        with pytest.raises(BadUse, match=received):
            Whitening.from_config({"amplitude": True})
        return
    codes = [each.encode(images()).capsules for each in (model, load(former))]
    np.testing.assert_array_equal(*codes)
    assert Whitening.from_config({"amplitude": False, "name": "a"}).name == "a"


def test_mixed_bfloat16(small_product):
    half = small_product(SHAPE, dtype="mixed_bfloat16", implementation="fused")
    full = small_product(SHAPE)
    for weight, exact in zip(half.weights, full.weights, strict=True):
        weight.assign(exact)
    got = half.reconstruct(images())
    assert got["images"].dtype == "float32"
    # Eight bits of mantissa through two routings and four convolutions.
    difference = np.asarray(got["images"]) - np.asarray(full.reconstruct(images())["images"])
    assert np.abs(difference).max() < 0.05
    energies = half.free_energy(images())["free_energy"], full.free_energy(images())["free_energy"]
    assert energies[0].dtype == "float32"
    np.testing.assert_allclose(*energies, rtol=0.05)
    assert half.sample(3, 1)["images"].dtype == "float32"


def test_parts_that_were_trained_elsewhere_keep_their_weights(model):
    whole = ProductOfExpertCapsules(model.autoencoder, model.primary, model.encoder, model.decoder)
    whole.build((None, 20, 22, 1))
    assert np.array_equal(whole(images()), model(images()))


def test_both_implementations_agree(model, small_product):
    streamed = small_product(SHAPE, implementation="fused")
    streamed.set_weights(model.get_weights())
    got, expected = streamed.reconstruct(images()), model.reconstruct(images())
    for key in expected:
        # float32 sums in another order, through two routings.
        np.testing.assert_allclose(got[key], expected[key], rtol=1e-3, atol=1e-4)
