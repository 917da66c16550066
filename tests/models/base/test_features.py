"""Features that are computed when they are asked for: the same as those on disk."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import ConvAutoencoder, registry
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import RowView
from keras_capsule_poe.models.base import features as stored
from keras_capsule_poe.training import Reporter, train
from keras_capsule_poe.training.settings import disk_limit

IMAGES = np.random.default_rng(0).integers(0, 256, (150, 28, 28, 1), dtype=np.uint8)
TINY = {
    "autoencoder": {"filters": 4, "epochs": 1},
    "encoder": {"capsules": 3, "dim": 4, "routing_iterations": 2, "epochs": 2, "batch_size": 25},
}


@pytest.fixture(scope="module", params=["float32", "mixed_bfloat16"])
def autoencoder(request):
    keras.utils.set_random_seed(0)
    model = ConvAutoencoder(filters=16, dtype=request.param)
    model.build((None, 28, 28, 1))
    return model


@pytest.mark.parametrize("images", [IMAGES, RowView(IMAGES, np.arange(150))])
def test_rows_are_the_same_whatever_is_asked_with_them(autoencoder, images):
    """Encoded in batches of their own sizes, some differ in the last bit of bfloat16."""
    rows = stored.EncodedRows(autoencoder, images)
    whole = rows[:]
    assert whole.shape == rows.shape and whole.dtype == np.float16 and len(rows) == 150
    error = whole - keras.ops.convert_to_numpy(autoencoder.encode(IMAGES[:150] / 255.0))
    # float16 keeps 11 bits, bfloat16 8 of them.
    assert np.abs(error).max() < 2**-7 * np.abs(whole).max()
    for n in (1, 7, 32, 128, 129):
        some = np.random.default_rng(n).permutation(150)[:n]
        assert np.array_equal(rows[some], whole[some])
    assert np.array_equal(rows[100:149], whole[100:149])
    assert np.array_equal(rows[5], whole[5])
    assert rows[:0].shape == (0, *whole.shape[1:])


def test_large_filters_take_few_multiplications():
    autoencoder = ConvAutoencoder(filters=64)
    autoencoder.build((None, 28, 28, 1))
    plain = keras.ops.convert_to_numpy(autoencoder.encode(IMAGES[:20] / 255.0))
    with autoencoder.fast():
        fast = keras.ops.convert_to_numpy(autoencoder.encode(IMAGES[:20] / 255.0))
    ours = stored.EncodedRows(autoencoder, IMAGES)[:20]
    # Batches of other sizes round differently in float32, which float16 seldom shows.
    assert np.mean(ours == fast.astype("float16")) > 0.99 > np.mean(ours == plain.astype("float16"))
    # What ten points cost, of the largest feature: no more than float16 rounds.
    assert np.abs(fast - plain).max() < 1e-3 * np.abs(plain).max()


def test_limits_have_units():
    for limit, found in ((1, 1e9), (0, 0), ("1.5", 1.5e9), ("20GB", 2e10), ("3 tb", 3e12)):
        assert disk_limit(limit) == found
    for limit in ("", "GB", "-1", "1.2.3", "5 parsecs", "nan"):
        with pytest.raises(ValueError):
            disk_limit(limit)


def small_run(folder, limit):
    how = {"features_limit": limit, "implementation": "reference", "precision": "float32"}
    values = {"dataset": "digits", "limit": 60, "deterministic": True, "compute": how, **TINY}
    model = registry.create("capsules", **values)
    return train(model, folder, reporter=Reporter(verbose=0), stage="encoder")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training with features on disk, and with features computed anew."""
    folder = tmp_path_factory.mktemp("runs")
    return [small_run(folder / name, limit) for name, limit in (("disk", 100), ("anew", "0 MB"))]


@pytest.mark.long
def test_training_on_them_gives_the_same_numbers(runs):
    """Every weight and code of the encoder, bit for bit, and every batch in any order."""
    kept, anew = (stored.feature_maps(run, "train") for run in runs)
    assert isinstance(kept, np.memmap) and isinstance(anew, stored.EncodedRows)
    assert runs[1].path("features/train.npy").stat().st_size < 256
    order = {"batch_size": 16, "seed": 3, "epochs": 2, "first_step": 1}
    for ours, theirs in zip(batches(anew, **order), batches(kept, **order), strict=True):
        assert np.array_equal(ours, theirs)
    ours, theirs = (stored.load_model(run, "encoder").get_weights() for run in (runs[1], runs[0]))
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    for name in ("features/primary.npz", "encoder/visited.npz"):
        ours, theirs = (stored.load_arrays(run, name) for run in (runs[1], runs[0]))
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)
    assert np.array_equal(*(stored.load_rows(run, "encoder/codes.npy") for run in runs))


@pytest.mark.long
def test_a_run_goes_on_under_another_limit(runs):
    """Where features lie changes nothing, so the setting may change; what is there stays."""
    run = small_run(runs[1].folder.path, 1)
    assert isinstance(stored.feature_maps(run, "train"), stored.EncodedRows)
