"""Arrays by their usual names, in `.npz`, `.npy` and idx files."""

import gzip
import os
import shutil
import struct

import numpy as np
import pytest

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data.array_names import place, stem

RANDOM = np.random.default_rng(0)
N, TESTS = 12, 5
X, OTHER, THIRD = RANDOM.integers(0, 256, (3, N, 6, 7), dtype=np.uint8)
Y = np.arange(N) % 3


def idx(path, array, code=8):
    """Writes an idx file, compressed if its name ends in .gz."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "wb") as file:
        file.write(struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape))
        file.write(array.tobytes())
    return path


def mnist(folder, ending=".gz", prefix="", test="t10k"):
    folder.mkdir(exist_ok=True)
    for split, images, labels in (("train", X, Y), (test, OTHER[:TESTS], Y[:TESTS])):
        idx(folder / f"{prefix}{split}-images-idx3-ubyte{ending}", images)
        idx(folder / f"{prefix}{split}-labels-idx1-ubyte{ending}", labels.astype("u1"))
    return folder


def check(data, tests=TESTS, held_out=None, labelled=True):
    """The images are those of X in order, with the labels of Y, or drawn from them."""
    known = {image.tobytes(): label for image, label in zip(X, Y)}
    assert len(data.test) == tests
    assert len(data.train) == (N if tests in (TESTS, 4) else N - tests)
    assert (data.held_out and len(data.held_out)) == held_out
    for image, label in zip(data.train.images, data.train.labels if labelled else Y):
        assert not labelled or known[image.tobytes()] == label
    assert (data.train.labels is not None) == labelled


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        # MedMNIST, with labels in a column.
        (
            {
                **{"train_images": X, "train_labels": Y[:, None]},
                **{"val_images": THIRD[:4], "val_labels": Y[:4, None]},
                **{"test_images": OTHER[:TESTS], "test_labels": Y[:TESTS, None]},
            },
            {"held_out": 4},
        ),
        ({"x_train": X, "y_train": Y, "x_val": OTHER[:4], "y_val": Y[:4]}, {"tests": 4}),
        ({"trainX": X, "trainY": Y, "testX": OTHER[:TESTS], "testY": Y[:TESTS]}, {}),
        ({"X_train": X, "Y_train": Y, "X_test": OTHER[:TESTS], "Y_test": Y[:TESTS]}, {}),
        ({"images": X, "target": Y}, {"tests": 1}),
        ({"x_train": X, "labels": Y}, {"tests": 1}),
        ({"X": X, "y": Y}, {"tests": 1}),
        ({"data": X, "targets": Y}, {"tests": 1}),
        ({"arr_0": X, "arr_1": Y}, {"tests": 1}),
        ({"images": X, "y_train": Y}, {"tests": 1}),
        ({"faces": X}, {"tests": 1, "labelled": False}),
    ],
)
def test_usual_names(tmp_path, arrays, found):
    np.savez(tmp_path / "a.npz", **arrays)
    data = load_images(tmp_path / "a.npz", test_fraction=0.1)
    if found.get("tests") == 1:
        found = {**found, "tests": 3 if found.get("labelled", True) else 1}
    check(data, **found)
    assert not any("Left out" in note for note in data.notes)


@pytest.mark.parametrize(
    ("arrays", "options", "unused"),
    [
        ({"images": X, "labels": Y, "ages": Y, "names": Y}, {}, "ages, names"),
        ({"images": X, "labels": Y, "target": Y}, {"label_column": "labels"}, "target"),
        (
            {"faces": X, "masks": OTHER, "kind": Y},
            {"column": "faces", "label_column": "kind"},
            "masks",
        ),
        (
            {"x_train": X, "y_train": Y, "x_test": OTHER[:TESTS], "fine_train": 1 - Y % 2},
            {},
            "fine_train",
        ),
        ({"images": X, "labels": Y, "y_test": Y[:3]}, {}, "y_test"),
    ],
)
def test_what_is_not_used_is_named(tmp_path, arrays, options, unused):
    np.savez(tmp_path / "a.npz", **arrays)
    data = load_images(tmp_path / "a.npz", **options)
    assert data.train.labels is not None
    assert f"Left out: arrays {unused} of {tmp_path}/a.npz." in data.notes


def test_an_option_chooses_the_labels(tmp_path):
    fine = (Y + 1) % 2
    arrays = {"x_train": X, "y_train": Y, "fine_train": fine}
    np.savez(tmp_path / "a.npz", **arrays, x_test=OTHER[:TESTS], fine_test=fine[:TESTS])
    data = load_images(tmp_path / "a.npz", label_column="fine")
    assert data.train.labels.tolist() == fine.tolist() and len(data.test.labels) == TESTS
    for options, words in (
        ({"label_column": "kind"}, "no array 'kind'; `label_column` must name"),
        ({"column": "kind"}, "no array 'kind'; `column` must name"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            load_images(tmp_path / "a.npz", **options)
        assert caught.value.hint in options
    np.savez(tmp_path / "a.npz", images=X, labels=Y, target=Y)
    with pytest.raises(DataError, match="several arrays of labels; .* Received: arrays labels, t"):
        load_images(tmp_path / "a.npz")


def test_former_runs_keep_what_they_read(tmp_path):
    np.savez(tmp_path / "a.npz", images=X, target=Y)
    data = load_images(tmp_path / "a.npz", data_version=2)
    assert data.train.labels is None and "Left out: arrays target" in data.notes[0]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_files(tmp_path, ending):
    folder = mnist(tmp_path / "MNIST", ending)
    for dataset in (folder, folder / f"train-images-idx3-ubyte{ending}"):
        data = load_images(dataset)
        check(data)
        assert np.array_equal(data.train.images[..., 0], X)
        assert np.array_equal(data.test.images[..., 0], OTHER[:TESTS])
        assert data.train.class_names == ("0", "1", "2")
        stored = load_images(dataset, store=tmp_path / "stores")
        assert stored.fingerprints == data.fingerprints
    # torchvision keeps both forms in a folder of a folder.
    mnist(folder, "" if ending else ".gz")
    (tmp_path / "raw").mkdir()
    folder.rename(tmp_path / "raw" / "raw")
    check(load_images(tmp_path / "raw"))
    check(load_images(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "raw")))


def test_idx_files_of_several_sets(tmp_path):
    for prefix in ("emnist-letters-", "emnist-digits-"):
        mnist(tmp_path / "gzip", prefix=prefix, test="test")
    with pytest.raises(DataError, match="several arrays of images; `column` must name one"):
        load_images(tmp_path / "gzip")
    data = load_images(tmp_path / "gzip" / "emnist-letters-train-images-idx3-ubyte.gz")
    assert data.train.labels.tolist() == Y.tolist() and len(data.test) == TESTS
    # These files hold images with rows and columns exchanged.
    assert np.array_equal(data.train.images[..., 0], X.swapaxes(1, 2))
    assert any("rows and columns" in note for note in data.notes)


def test_npy_files(tmp_path):
    np.save(tmp_path / "x_train.npy", X)
    np.save(tmp_path / "y_train.npy", Y)
    check(load_images(tmp_path / "x_train.npy"), tests=3)
    np.save(tmp_path / "x_test.npy", OTHER[:TESTS])
    np.save(tmp_path / "faces.npy", THIRD)
    for dataset in (tmp_path, tmp_path / "x_train.npy"):
        data = load_images(dataset)
        check(data)
        assert any("faces" in note for note in data.notes) == (dataset == tmp_path)
    data = load_images(tmp_path / "faces.npy")
    assert data.train.labels is None and len(data.train) == N - 1
    # A file of test images is not trained with others.
    assert len(load_images(tmp_path / "x_test.npy").train) == TESTS - 1
    with pytest.raises(DataError, match="`labels` has no meaning for files of arrays"):
        load_images(tmp_path / "faces.npy", labels="labels.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "begin as an idx file"),
        (b"\0\0\x08\x03\0\0\0\x01", "ends in its header"),
        (b"\0\0\x07\x03" + bytes(12), "begin as an idx file"),
        (struct.pack(">HBB3I", 0, 8, 3, 4, 5, 5) + bytes(99), "ends before its last row"),
        (struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**15, 2**15), "ends before its last row"),
        (struct.pack(">HBB1I", 0, 8, 1, 4) + bytes(4), "must have shape"),
        (struct.pack(">HBB3I", 0, 12, 3, 2, 2, 2) + bytes(32), "must be uint8"),
        (b"\x1f\x8b\x08damaged", "damaged or of another kind"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, words):
    path = tmp_path / f"a-idx3-ubyte{'.gz' if content[:1] == bytes([31]) else ''}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load_images(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_files_of_arrays_that_are_no_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(DataError, match="regular file"):
        load_images(tmp_path / "x.npy")
    with pytest.raises(DataError, match="regular file|holds no images"):
        load_images(tmp_path)


def test_names_of_arrays():
    assert place("images") == ("", "images", "") and place("fine") is None
    assert place("t10k-labels", is_prefixed=True) == ("", "labels", "test")
    assert [stem(name) for name in ("a-idx1-ubyte.GZ", "b.npy.gz", "c.png")] == ["a", "b", "c.png"]


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint16])
def test_the_conversion_that_a_file_is_told_is_taken(tmp_path, dtype):
    """Rejects the advice of bytes for zeros and ones, which are refused next."""
    images = np.random.default_rng(0).integers(0, 2, (9, 8, 8)).astype(dtype)
    np.savez(tmp_path / "a.npz", images=images)
    with pytest.raises(DataError, match=r"floats in \[0, 1\].*as floats|astype\('float32'\)"):
        load_images(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=images.astype("float32"))
    assert load_images(tmp_path / "a.npz").train.images.max() == 255
