"""The convolutional autoencoder: any image size, learning, precision, serialisation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import ConvAutoencoder, PrimaryCapsules


def images(n=2, shape=(20, 20, 1), seed=0):
    return np.random.default_rng(seed).uniform(size=(n, *shape)).astype("float32")


def built(shape=(20, 20, 1), **options):
    model = ConvAutoencoder(**{"filters": 8, **options})
    model.build((None, *shape))
    return model


def test_the_papers_sizes():
    model = built((28, 28, 1), filters=128)
    assert model.feature_shape == (6, 6, 128)
    assert PrimaryCapsules(8).compute_output_shape((None, *model.feature_shape)) == (None, 576, 8)
    # 10x10 filters and biases, 1 to 128; 9x9, 128 to 128; and their mirror images.
    sizes = [100 * 128 + 128, 81 * 128 * 128 + 128, 81 * 128 * 128 + 128, 100 * 128 + 1]
    assert model.count_params() == sum(sizes)


@pytest.mark.parametrize(
    "shape, feature_shape",
    [
        ((20, 20, 1), (2, 2, 8)),
        ((28, 28, 1), (6, 6, 8)),
        ((28, 28, 3), (6, 6, 8)),
        ((21, 34, 3), (3, 9, 8)),
        ((37, 29, 1), (11, 7, 8)),
        ((20, 33, 4), (2, 9, 8)),
    ],
)
def test_images_keep_their_size(shape, feature_shape):
    model = built(shape)
    batch = images(shape=shape)
    features = model.encode(batch)
    assert features.shape[1:] == feature_shape == model.feature_shape
    for result in (model(batch), model.decode(features)):
        assert result.shape == batch.shape == model.compute_output_shape(batch.shape)
        assert result.dtype == "float32"
        assert 0 <= np.min(result) and np.max(result) <= 1


def test_what_is_fast_differs_by_rounding_and_ends():
    model = built((28, 28, 1), filters=64)
    batch = images(shape=(28, 28, 1))
    exact = [np.asarray(x) for x in (model.encode(batch), model(batch))]
    with pytest.raises(KeyError), model.fast():
        with model.fast():
            pass
        quick = [np.asarray(x) for x in (model.encode(batch), model(batch))]
        raise KeyError
    for ours, plain, after in zip(quick, exact, (model.encode(batch), model(batch))):
        # What ten products cost, see `test_fast_convolution`.
        assert 0 < np.abs(ours - plain).max() < 2e-3 * plain.std()
        np.testing.assert_array_equal(after, plain)
    # Training in float32 has its own digits again.
    assert model.reduction.limits is model.expansion.limits is None


@pytest.mark.parametrize("size", range(20, 41))
def test_every_pixel_reaches_the_features_and_is_drawn_from_them(size):
    """By gradients of positive filters, so that nothing cancels; the other axis is of odd size."""
    model = built((size, 23, 1), filters=1, dropout=0.0)
    model.set_weights([np.ones_like(w) if w.ndim == 4 else w for w in model.get_weights()])
    images = tf.ones((1, size, 23, 1))
    with tf.GradientTape() as tape:
        tape.watch(images)
        coded = tf.reduce_sum(model.encode(images))
    assert np.min(tape.gradient(coded, images)) > 0
    # In the wrong version, 9x9 filters of even sizes, the last row is the bias alone.
    features = tf.ones((1, *model.feature_shape)) / 1000
    drawn = model.decode(features) - model.decode(tf.zeros_like(features))
    assert np.min(drawn) > 0


@pytest.mark.parametrize(
    "shape",
    [
        (None, 19, 28, 1),
        (None, 28, 19, 3),
        (None, 28, 28),
        (28, 28),
        (None, None, 28, 1),
        (None, 28, 28, None),
    ],
)
def test_small_images_wrong_ranks_and_unknown_sizes_are_refused(shape):
    match = "`images` must have shape.*at least 20.*Received: image_shape"
    with pytest.raises(ValueError, match=match):
        ConvAutoencoder(filters=8).build(shape)


def test_a_kernel_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`kernel_size` is too large.*Received: kernel_size=11"):
        built((20, 20, 1), kernel_size=11)
    assert built((21, 21, 1), kernel_size=11).feature_shape == (1, 1, 8)


@pytest.mark.parametrize(
    "name, value",
    [
        ("filters", 0),
        ("filters", 8.0),
        ("kernel_size", -1),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("negative_slope", -0.1),
        ("negative_slope", 1.1),
        ("feature_noise", -0.1),
        ("feature_noise", float("nan")),
    ],  # fmt: skip
)
def test_bad_arguments_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"`{name}` must .*Received: {name}="):
        ConvAutoencoder(**{name: value})


def compiled(**options):
    model = built(**options)
    optimizer = keras.optimizers.Adam(0.005)
    model.compile(optimizer=optimizer, loss="binary_crossentropy", jit_compile=False)
    return model


def bars(n, seed):
    """Images (n, 20, 20, 1) of one bright row or column."""
    random = np.random.default_rng(seed)
    batch = np.zeros((n, 20, 20, 1), "float32")
    for image in batch:
        at = random.integers(20)
        image[(at, slice(None)) if random.integers(2) else (slice(None), at)] = 1
    return batch


def test_learns_its_own_input_and_nothing_else_is_needed():
    keras.utils.set_random_seed(0)
    model = compiled(dropout=0.0)
    batch, held_out = bars(64, 1), bars(64, 2)
    # The best constant image: every pixel at the mean, an error of 0.05 * 0.95.
    constant = np.mean((held_out - batch.mean(axis=0)) ** 2)
    untrained = np.mean((np.asarray(model(held_out)) - held_out) ** 2)
    model.fit(batch, batch_size=8, epochs=15, verbose=0)
    trained = np.mean((np.asarray(model(held_out)) - held_out) ** 2)
    assert untrained > constant > 2 * trained
    assert model.evaluate(held_out, verbose=0) < 0.2


def test_dropout_depends_on_seed_and_step_and_only_acts_in_training():
    batch = images()
    model = compiled(dropout=0.5, seed=3)
    assert np.array_equal(model(batch), model(batch, training=False))
    first = np.asarray(model(batch, training=True))
    assert np.array_equal(first, model(batch, training=True))
    assert not np.array_equal(first, model(batch))
    model.optimizer.iterations.assign(1)
    assert not np.array_equal(first, model(batch, training=True))
    other = compiled(dropout=0.5, seed=4)
    other.set_weights(model.get_weights())
    assert np.array_equal(other(batch), model(batch))
    assert not np.array_equal(first, other(batch, training=True))


def test_dropout_without_an_optimizer():
    model, trained = built(dropout=0.5, seed=3), compiled(dropout=0.5, seed=3)
    trained.set_weights(model.get_weights())
    assert np.array_equal(model(images(), training=True), trained(images(), training=True))


def test_noise_on_the_features_is_as_large_as_said_and_only_acts_in_training():
    """Rejects noise of the batch's deviation, and masks of the dropout that change with it."""
    batch = images(shape=(28, 28, 1)) * np.reshape([1.0, 0.1], (2, 1, 1, 1))
    model = compiled(shape=(28, 28, 1), dropout=0.0, feature_noise=0.5, filters=64)
    features = np.asarray(model.encode(batch))
    noise = np.asarray(model._with_noise(features)) - features
    axes = (1, 2, 3)
    np.testing.assert_allclose(noise.std(axis=axes), 0.5 * features.std(axis=axes), rtol=0.05)
    first = np.asarray(model(batch, training=True))
    np.testing.assert_array_equal(first, model(batch, training=True))
    np.testing.assert_allclose(first, model.decode(features + noise), atol=1e-6)
    np.testing.assert_array_equal(model(batch), model(batch, training=False))
    model.optimizer.iterations.assign(1)
    assert not np.array_equal(first, model(batch, training=True))


def test_noise_of_zero_is_none():
    """Bit-equal weights after training, in the place of an argument's default, too."""
    trained = []
    for options in ({}, {"feature_noise": 0.0}, {"feature_noise": 0.1}):
        model = compiled(dropout=0.3, seed=3, **options)
        model.fit(bars(8, 1), batch_size=4, epochs=1, verbose=0, shuffle=False)
        trained.append(model.get_weights())
    assert all(np.array_equal(a, b) for a, b in zip(trained[0], trained[1], strict=True))
    assert not np.array_equal(trained[0][-2], trained[2][-2])


@pytest.mark.long
def test_two_runs_with_one_seed_are_identical():
    runs = {}
    for run, seed in enumerate((3, 3, 4)):
        model = compiled(dropout=0.3, seed=seed)
        start = model.get_weights()
        model.fit(bars(32, 1), batch_size=16, epochs=2, verbose=0, shuffle=False)
        runs[run] = start + model.get_weights()
    assert all(np.array_equal(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert not np.array_equal(runs[0][0], runs[2][0])


def test_save_and_load(tmp_path):
    how = {"dropout": 0.25, "negative_slope": 0.1, "seed": 5, "feature_noise": 0.5}
    model = built((21, 34, 3), name="autoencoder", **how)
    model.save(tmp_path / "autoencoder.keras")
    again = keras.saving.load_model(tmp_path / "autoencoder.keras")
    assert again.get_config() == model.get_config()
    batch = images(shape=(21, 34, 3))
    assert np.array_equal(again(batch), model(batch))
    assert again.feature_shape == (3, 9, 8)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(precision):
    model = built(dtype=precision)
    exact = built()
    exact.set_weights(model.get_weights())
    batch = images()
    # The convolutions themselves, not only what comes out.
    assert model.encode(batch).dtype == precision.removeprefix("mixed_")
    assert model(batch).dtype == "float32"
    assert {str(weight.dtype) for weight in model.weights} == {"float32"}
    # Eight bits of mantissa through four convolutions; the sigmoid quarters errors.
    assert np.abs(np.asarray(model(batch)) - np.asarray(exact(batch))).max() < 0.02


def test_shapes_and_operations_are_known_without_building():
    shapes = ConvAutoencoder.shapes((28, 28, 1))
    assert (shapes.inner, shapes.features) == ((19, 19, 128), (6, 6, 128))
    # Two operations for each weight and place: 19x19 places of 100, and 6x6 of 81 * 128, twice.
    assert shapes.operations == 2 * 2 * 128 * (361 * 100 + 36 * 81 * 128)
    for shape in ((20, 20, 1), (21, 34, 3), (37, 29, 1)):
        model = built(shape)
        assert ConvAutoencoder.shapes(shape, filters=8).features == model.feature_shape


def test_arrays_build_and_train_the_model():
    model = ConvAutoencoder(filters=2, dropout=0.0)
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(images(4), verbose=0)
    assert model(images()).shape == (2, 20, 20, 1)


def test_images_weigh_as_they_are_said_to():
    """Rejects weights that are left out, and those of columns of pixels."""
    x, model = images(3), built()
    model.compile("sgd", "mse", jit_compile=False)
    made = np.asarray(model(x), "float64")
    weights = np.array([0.5, 0.0, 2.0])
    expected = np.mean(weights * ((made - x) ** 2).mean(axis=(1, 2, 3)))
    found = model.evaluate(x, sample_weight=weights, verbose=0)
    assert found == pytest.approx(expected, rel=1e-5)
    before = model.get_weights()
    model.fit(x, sample_weight=np.zeros(3), verbose=0)
    for a, b in zip(model.get_weights(), before):
        np.testing.assert_array_equal(a, b)


def test_images_that_would_come_back_smaller_are_refused():
    model = built()
    assert model(images(shape=(22, 20, 1))).shape == (2, 22, 20, 1)
    with pytest.raises(ValueError, match="an even number of pixels larger.*20x20.*Received: 21x20"):
        model(images(shape=(21, 20, 1)))
