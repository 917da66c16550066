"""`.npz` files."""

import zipfile

import numpy as np
import pytest

from keras_capsule_poe.data import DataError, load_images, pixels

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (10, 20, 22), dtype=np.uint8)


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez_compressed(tmp_path / "some.npz", **arrays)
        return tmp_path / "some.npz"

    return write


def test_training_and_test_arrays(save):
    path = save(x_train=IMAGES[:7], y_train=np.arange(7), x_test=IMAGES[7:], y_test=np.arange(3))
    data = load_images(str(path), limit=5)
    assert np.array_equal(data.train.images, IMAGES[:5, ..., np.newaxis])
    assert np.array_equal(data.test.images, IMAGES[7:, ..., np.newaxis])
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4]
    assert data.test.labels.dtype == np.int64
    assert data.name == str(path)


def test_one_array_is_split(save):
    for names, column in [
        (("images", "labels"), None),
        (("faces", "labels"), "faces"),
        (("x_train", "y_train"), None),
    ]:
        path = save(**{names[0]: IMAGES, names[1]: np.arange(10).reshape(10, 1)})
        data = load_images(path, column=column, test_fraction=0.3)
        assert (len(data.train), len(data.test)) == (7, 3)
        for part in (data.train, data.test):
            assert np.array_equal(part.images[..., 0], IMAGES[part.labels])
        assert sorted([*data.train.labels, *data.test.labels]) == list(range(10))
        limited = load_images(path, column=column, test_fraction=0.3, limit=2)
        assert np.array_equal(limited.train.images, data.train.images[:2])
        assert np.array_equal(limited.test.images, data.test.images)


def test_floats_come_back_as_the_bytes_they_were(save):
    for dtype in [np.float16, np.float32, np.float64]:
        units = (IMAGES / 255).astype(dtype)
        data = load_images(save(x_train=units, x_test=units[:1]))
        assert data.train.labels is None
        assert np.array_equal(data.train.images[..., 0], IMAGES)


def test_rgb_turned_grey_and_resized(save):
    images = np.full((4, 40, 40, 3), (200, 100, 50), np.uint8)
    assert load_images(save(images=images)).image_shape == (40, 40, 3)
    data = load_images(save(images=images), grey=True, image_size=(20, 30))
    assert data.image_shape == (20, 30, 1)
    assert np.all(data.train.images == round(0.299 * 200 + 0.587 * 100 + 0.114 * 50))


def test_arrays_that_are_no_images_are_refused(save):
    for arrays, message in [
        ({"images": IMAGES[0]}, r"shape \(N, H, W, C\) or \(N, H, W\). Received: shape \(20, 22\)"),
        ({"images": IMAGES.reshape(5, 2, 20, 22)}, "1 or 3 channels, in the last dimension"),
        ({"images": IMAGES[:0]}, "is empty"),
        ({"images": IMAGES[:1]}, "at least 2 images"),
        (
            {"images": IMAGES.astype(np.int32)},
            r"must be uint8 in \[0, 255\] or floats.*dtype int32",
        ),
        ({"images": IMAGES.astype(np.float32) - 3}, r"floats in \[0, 1\].*from -3 to 252"),
        ({"images": np.where(IMAGES > 254, np.nan, 0)}, r"not hold NaN. Received: \d+ NaN"),
        ({"images": np.array([{}], object)}, "damaged or of another kind.*holds objects"),
        ({"images": IMAGES, "labels": np.arange(9)}, r"'labels'.*shape \(10,\).*shape \(9,\)"),
        ({"images": IMAGES, "labels": np.arange(10) / 9}, r"'labels'.*must be integers"),
        ({"images": IMAGES, "labels": np.arange(10) - 1}, r"'labels'.*from -1 to 8"),
        ({"a": IMAGES, "b": IMAGES}, "`column` must name .* Received: arrays a, b"),
        ({"x_train": IMAGES, "x_test": IMAGES[:, :, :20]}, "must have the same shape"),
    ]:
        path = save(**arrays)
        with pytest.raises(DataError, match=message) as caught:
            load_images(path)
        assert "\n" not in str(caught.value)


def test_a_column_that_is_not_there_is_refused(save):
    with pytest.raises(DataError, match="no array 'faces'.* Received: arrays images"):
        load_images(save(images=IMAGES), column="faces")


def test_files_that_are_no_archives_are_refused(save):
    for kind in ["truncated", "flipped", "text", "empty", "npy", "pickle"]:
        path = save(images=IMAGES)
        whole = path.read_bytes()
        if kind == "npy":
            with open(path, "wb") as file:
                np.save(file, IMAGES)
        else:
            middle = len(whole) // 2
            flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
            path.write_bytes(
                {
                    "truncated": whole[:middle],
                    "flipped": flipped,
                    "text": b"no archive",
                    "empty": b"",
                    "pickle": b"\x80\x04N.",
                }[kind]
            )
        with pytest.raises(DataError, match="cannot be read as an .npz archive") as caught:
            load_images(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


def test_odd_members_are_refused(tmp_path):
    """Headers that are no Python or ask for a petabyte, and a member that is no array at all."""
    for header in ["[1, 2", "{'descr': '|u1', 'fortran_order': False, 'shape': (10**15,)}", None]:
        text = (header or "").replace("10**15", str(10**15)).ljust(117).encode() + b"\n"
        member = (
            b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text if header else b"text"
        )
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("images.npy", member)
        refused = "must have shape" if header and header[0] == "{" else "cannot be read as an .npz"
        with pytest.raises(DataError, match=f"a.npz {refused}") as caught:
            load_images(tmp_path / "a.npz")
        assert "\n" not in str(caught.value)


def test_a_small_file_of_endless_zeros_is_refused_before_it_is_read(save, monkeypatch):
    """Of two megabytes unpacked, where there is memory for one."""
    for name in ["images", "labels"]:
        arrays = {"images": np.arange(8, dtype="uint8").reshape(2, 2, 2)}
        path = save(**{**arrays, name: np.zeros((2, 1000, 1000), "uint8")})
        assert path.stat().st_size < 20_000
        monkeypatch.setattr(pixels, "_memory", lambda: 1e6)
        with pytest.raises(DataError, match="would take 0 GB of memory"):
            load_images(path)


def test_an_array_by_columns_is_no_way_around_memory(tmp_path, monkeypatch):
    """Its rows do not lie one after another, so that a store reads it as a whole."""
    images = np.asfortranarray(np.zeros((3000, 28, 28), np.uint8))
    np.savez_compressed(tmp_path / "a.npz", images=images)
    monkeypatch.setattr(pixels, "_memory", lambda: 1e6)
    with pytest.raises(DataError, match="array images of .*a.npz.* would take 0 GB of memory"):
        load_images(tmp_path / "a.npz", store=tmp_path / "store")
    monkeypatch.setattr(pixels, "_memory", lambda: 3e6)
    assert len(load_images(tmp_path / "a.npz", store=tmp_path / "store").train) == 2700


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such folder or file. Received: .*none.npz"):
        load_images(str(tmp_path / "none.npz"))


def labelled(save, labels, **more):
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 9, 9), dtype="uint8")
    return load_images(save(images=images, labels=labels, **more), test_fraction=0.34)


def test_words_of_training_and_test_images_have_the_same_numbers(save):
    images = np.random.default_rng(0).integers(0, 256, (3, 9, 9), dtype="uint8")
    words = {"y_train": np.array(["b", "c", "b"]), "y_test": np.array(["c", "a", "c"])}
    data = load_images(save(x_train=images, x_test=images, **words))
    assert data.train.class_names == ("a", "b", "c")
    assert data.train.labels.tolist() == [1, 2, 1] and data.test.labels.tolist() == [2, 0, 2]


def test_integers_may_have_names(save):
    names = np.array(["cat", "dog"])
    assert labelled(save, np.arange(6) % 2, class_names=names).train.class_names == ("cat", "dog")
    with pytest.raises(DataError, match="a string for each label from 0 to 2. Received: 2"):
        labelled(save, np.arange(6) % 3, class_names=names)
