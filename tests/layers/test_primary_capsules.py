"""Primary capsules: sizes, statistics estimated from data, and the way back to features."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import PrimaryCapsules
from keras_capsule_poe.functions import squash, unsquash


def feature_maps(n=50, shape=(3, 4, 6), seed=0):
    """Features with a mean of 2 and a spread that differ from entry to entry."""
    random = np.random.default_rng(seed)
    spread = random.uniform(0.5, 2.0, size=shape)
    return (random.normal(size=(n, *shape)) * spread + 2 + spread).astype("float32")


def test_shapes_and_values():
    features = feature_maps()
    layer = PrimaryCapsules(8, gain=0.3)
    x = layer(features)
    assert layer.capsules == 3 * 4 * 6 // 8
    assert x.shape == (50, 9, 8) == layer.compute_output_shape(features.shape)
    assert layer.compute_output_shape((None, 3, 4, 6)) == (None, 9, 8)
    # Consecutive numbers of a feature map make a capsule; float32 rounding.
    np.testing.assert_allclose(x, squash(0.3 * features.reshape(50, 9, 8)), rtol=1e-5)
    assert layer.trainable_weights == []


@pytest.mark.parametrize("shape", [(12, 4), (3, 4, 6), (3, 2, 4, 6)])
def test_sequences_and_volumes_are_feature_maps(shape):
    features = feature_maps(shape=shape)
    layer = PrimaryCapsules(4)
    layer.adapt(features)
    x = layer(features)
    assert x.shape == (50, np.prod(shape) // 4, 4) == layer.compute_output_shape(features.shape)
    np.testing.assert_allclose(layer.to_features(x), features, rtol=1e-4, atol=1e-5)
    convolve = {2: keras.layers.Conv1D, 3: keras.layers.Conv2D, 4: keras.layers.Conv3D}[len(shape)]
    model = keras.Sequential([convolve(8, 2), PrimaryCapsules(4)])
    assert model(features).shape[1:] == (np.prod([size - 1 for size in shape[:-1]]) * 2, 4)


def test_the_papers_sizes():
    layer = PrimaryCapsules(8)
    assert layer.compute_output_shape((None, 6, 6, 128)) == (None, 576, 8)


@pytest.mark.parametrize("split", [[50], [1, 20, 29]])
def test_adapt_estimates_mean_and_gain(split):
    features = feature_maps()
    layer = PrimaryCapsules(8, target_length=0.4)
    layer.adapt(np.split(features, np.cumsum(split)[:-1]))
    wide = features.astype("float64")
    rms = np.sqrt(np.mean(np.sum((wide - wide.mean(axis=0)).reshape(50, 9, 8) ** 2, axis=-1)))
    # Stored in float32.
    np.testing.assert_allclose(layer.mean, wide.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(layer.feature_gain, 0.4 / rms, rtol=1e-6)
    z = np.asarray(unsquash(layer(features)), "float64")
    # float32, through squash and back.
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.sqrt(np.mean(np.sum(z**2, axis=-1))), 0.4, rtol=1e-4)


def test_adapt_without_centring():
    features = feature_maps()
    layer = PrimaryCapsules(8, center=False, target_length=0.4)
    layer.adapt([features[:20], features[20:]])
    assert not np.any(np.asarray(layer.mean))
    z = np.asarray(layer.to_capsules(features), "float64")
    np.testing.assert_allclose(np.sqrt(np.mean(np.sum(z**2, axis=-1))), 0.4, rtol=1e-5)


def test_adapt_of_features_with_a_mean_far_above_their_spread():
    features = 1000 + feature_maps().astype("float64")
    layer = PrimaryCapsules(8, target_length=0.5)
    layer.adapt([features])
    rms = np.sqrt(np.mean(np.sum((features - features.mean(axis=0)).reshape(50, 9, 8) ** 2, -1)))
    # E[f^2] - mean^2 loses six digits of float64's sixteen.
    np.testing.assert_allclose(layer.feature_gain, 0.5 / rms, rtol=1e-6)


def test_adapt_twice_forgets_the_first_time():
    layer = PrimaryCapsules(8)
    layer.adapt([feature_maps(seed=1)])
    first = np.asarray(layer.mean)
    layer.adapt([feature_maps(seed=2)])
    other = PrimaryCapsules(8)
    other.adapt([feature_maps(seed=2)])
    assert np.array_equal(layer.mean, other.mean) and not np.array_equal(layer.mean, first)
    assert float(layer.feature_gain) == float(other.feature_gain)


def test_to_features_undoes_the_call():
    features = feature_maps()
    layer = PrimaryCapsules(8, target_length=0.5)
    layer.adapt([features])
    again = layer.to_features(layer(features))
    assert again.shape == features.shape
    # The inverse of squash in float32 where |z| < 3, about 1e-6 of features up to 10.
    np.testing.assert_allclose(again, features, rtol=0, atol=5e-5)


def with_one(value):
    def fill(features):
        features.flat[7] = value
        return features

    return fill


@pytest.mark.parametrize(
    "fill",
    [
        pytest.param(lambda f: np.full_like(f, np.nan), id="nan"),
        pytest.param(with_one(np.nan), id="one nan"),
        pytest.param(with_one(np.inf), id="one infinity"),
        pytest.param(lambda f: np.zeros_like(f), id="zero"),
        # Numbers that float64 cannot hold, so that sums of equal ones are rounded.
        pytest.param(lambda f: np.full_like(f, 0.1, "float64"), id="equal"),
        pytest.param(lambda f: np.full_like(f, -0.7, "float64"), id="negative"),
        pytest.param(lambda f: np.repeat(f[:1], len(f), axis=0), id="equal images"),
    ],
)
def test_adapt_refuses_features_without_a_scale(fill):
    for n in (3, 7, 10):
        layer = PrimaryCapsules(8)
        with pytest.raises(ValueError, match=r"`adapt` needs finite features that differ.*Recei"):
            layer.adapt([fill(feature_maps(n))])
        assert float(layer.feature_gain) == 1.0


def test_adapt_refuses_a_single_image_and_no_image():
    with pytest.raises(ValueError, match="differ between images"):
        PrimaryCapsules(8).adapt([feature_maps(1)])
    for empty in ([], [feature_maps(0)]):
        with pytest.raises(ValueError, match="at least one batch.*Received none"):
            PrimaryCapsules(8).adapt(empty)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("shape", [(1, 4, 6), (3, 4, 1), (4, 6)])
def test_adapt_refuses_batches_of_another_shape(shape, center):
    layer = PrimaryCapsules(8, center=center)
    with pytest.raises(ValueError):
        layer.adapt([feature_maps(5), feature_maps(5, shape)])
    assert float(layer.feature_gain) == 1.0


@pytest.mark.parametrize(
    "shape", [(2, 30), (2, 3, 4, 6, 1, 2), (2, None, 8), (2, None, 4, 6), (2, 3, 4, None)]
)
def test_wrong_ranks_and_unknown_sizes_are_refused(shape):
    layer = PrimaryCapsules(8)
    for method in (layer.build, layer.compute_output_shape):
        with pytest.raises(ValueError, match="needs a feature map.*Received: input_shape"):
            method(shape)


def test_a_size_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"`dim` must divide the 72 .*Received: dim=7"):
        PrimaryCapsules(7)(feature_maps())


def test_other_sizes_than_built_for_are_refused():
    layer = PrimaryCapsules(8)
    layer(feature_maps())
    for shape in ((3, 4, 8), (4, 3, 6)):
        with pytest.raises(ValueError, match="incompatible with the layer"):
            layer(feature_maps(shape=shape))


@pytest.mark.parametrize(
    "name, value",
    [
        ("dim", 0),
        ("dim", -8),
        ("dim", 2.5),
        ("gain", 0.0),
        ("gain", -1.0),
        ("gain", float("nan")),
        ("target_length", 0.0),
        ("target_length", -0.5),
    ],
)
def test_bad_arguments_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"`{name}` must be .*Received: {name}="):
        PrimaryCapsules(**{name: value})


def test_config_and_registered_name():
    layer = PrimaryCapsules(4, gain=0.7, center=False, target_length=0.3, name="primary")
    serialized = keras.saving.serialize_keras_object(layer)
    assert serialized["registered_name"] == "keras_capsule_poe>PrimaryCapsules"
    for copy in (
        PrimaryCapsules.from_config(layer.get_config()),
        keras.saving.deserialize_keras_object(serialized),
    ):
        assert copy.get_config() == layer.get_config()
        assert (copy.dim, copy.gain, copy.center, copy.target_length) == (4, 0.7, False, 0.3)
        assert copy.name == "primary"


def test_mean_and_gain_are_saved_with_the_weights(tmp_path):
    layer = PrimaryCapsules(8)
    model = keras.Sequential([keras.Input((3, 4, 6)), layer])
    layer.adapt([feature_maps()])
    model.save(tmp_path / "primary.keras")
    again = keras.saving.load_model(tmp_path / "primary.keras")
    features = feature_maps(seed=5)
    assert np.array_equal(again(features), model(features))


def test_mixed_bfloat16():
    layer = PrimaryCapsules(8, dtype="mixed_bfloat16")
    layer.adapt([feature_maps()])
    exact = PrimaryCapsules(8)
    exact.adapt([feature_maps()])
    x = layer(feature_maps())
    assert x.dtype == "bfloat16" and layer.mean.dtype == "float32"
    # Features of up to 12 are rounded to 2^-8 of their value, which the gain, about 0.1, scales.
    error = np.asarray(tf.cast(x, "float32")) - np.asarray(exact(feature_maps()))
    assert np.abs(error).max() < 0.02
