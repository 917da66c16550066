"""Data sets of capsule papers in their own files, a few images each, through the real builders."""

import numpy as np
import pytest
import tensorflow_datasets as tfds
from scipy.io import savemat
from tensorflow_datasets.image_classification import mnist as mnist_builder

from keras_capsule_poe.data import load_images
from keras_capsule_poe.data import tfds as network
from keras_capsule_poe.io.pictures import grid

TRAIN, TEST = 6, 3
RANDOM = np.random.default_rng(0)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Loads a data set whose downloads are files that `provide` gives by their base name."""

    def load(name, provide, **options):
        def fetch(manager, urls):
            if isinstance(urls, dict):
                return {key: provide(str(url).rsplit("/", 1)[-1]) for key, url in urls.items()}
            return provide(str(urls).rsplit("/", 1)[-1])

        manager = tfds.download.DownloadManager
        for method in ("download", "extract", "download_and_extract"):
            monkeypatch.setattr(manager, method, fetch)
        monkeypatch.setattr(network, "is_online", lambda: True)
        return load_images(name, data_dir=tmp_path / "prepared", **options)

    return load


def images_of(n, shape):
    return RANDOM.integers(0, 256, (n, *shape), dtype=np.uint8)


def by_name(folder):
    """Provides files of a folder; a name that is none of them is the folder itself."""
    return lambda name: str(folder / name) if (folder / name).exists() else str(folder)


def compare(found, images, labels, extras=()):
    """A set holds these images in whatever order, each with its labels and extras."""
    rows = [int(np.flatnonzero((images == one).all(axis=(1, 2, 3)))[0]) for one in found.images]
    assert sorted(rows) == list(range(len(images)))
    assert found.labels.dtype == np.int64 and np.array_equal(found.labels, labels[rows])
    assert set(found.extras) == set(extras)
    for name, values in dict(extras).items():
        assert np.array_equal(found.extras[name], values[rows])


def write_idx(folder, prefix, n):
    """Images and labels of a split in the format of MNIST."""
    images, labels = images_of(n, (28, 28, 1)), RANDOM.integers(0, 10, n)
    (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(bytes(16) + images.tobytes())
    (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(
        bytes(8) + labels.astype(np.uint8).tobytes()
    )
    return images, labels


def test_kmnist(load, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist_builder, "_TRAIN_EXAMPLES", TRAIN)
    monkeypatch.setattr(mnist_builder, "_TEST_EXAMPLES", TEST)
    train, test = write_idx(tmp_path, "train", TRAIN), write_idx(tmp_path, "t10k", TEST)
    data = load("kmnist", by_name(tmp_path))
    compare(data.train, *train)
    compare(data.test, *test)
    assert data.train.class_names[:3] == ("o", "ki", "su")


def test_emnist_stands_upright(load, tmp_path, monkeypatch):
    config = mnist_builder.EMNIST.builder_configs["digits"]
    monkeypatch.setattr(config, "train_examples", TRAIN)
    monkeypatch.setattr(config, "test_examples", TEST)
    (tmp_path / "gzip").mkdir()
    files = tmp_path / "gzip"
    (train, labels), test = (
        write_idx(files, "emnist-digits-train", TRAIN),
        write_idx(files, "emnist-digits-test", TEST),
    )
    provide = by_name(files)
    found = load(
        "emnist/digits", lambda name: str(tmp_path) if "zip" == name[-3:] else provide(name)
    )
    # Its files hold images with rows and columns exchanged.
    compare(found.train, np.swapaxes(train, 1, 2), labels)
    compare(found.test, np.swapaxes(test[0], 1, 2), test[1])


def test_cifar10(load, tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    names = [f"class {i}" for i in range(10)]
    (folder / "batches.meta.txt").write_text("\n".join(names))
    parts = {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        images, labels = images_of(2, (32, 32, 3)), RANDOM.integers(0, 10, 2)
        # A label, then the red, the green and the blue plane.
        planes = np.moveaxis(images, -1, 1).reshape(2, -1)
        rows = np.concatenate([labels[:, None].astype(np.uint8), planes], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
        parts[name] = images, labels
    data = load("cifar10", lambda name: str(tmp_path))
    test = parts.pop("test_batch")
    compare(data.train, *(np.concatenate(arrays) for arrays in zip(*parts.values())))
    compare(data.test, *test)
    assert data.train.class_names == tuple(names)


def test_svhn_cropped(load, tmp_path):
    parts = {}
    for split, n in (("train", TRAIN), ("test", TEST), ("extra", 2)):
        images, labels = images_of(n, (32, 32, 3)), RANDOM.integers(0, 10, n)
        # Images along the last axis, and the digit 0 is ten.
        y = np.where(labels == 0, 10, labels)[:, np.newaxis]
        savemat(tmp_path / f"{split}_32x32.mat", {"X": np.moveaxis(images, 0, -1), "y": y})
        parts[split] = images, labels
    data = load("svhn_cropped", by_name(tmp_path))
    compare(data.train, *parts["train"])
    compare(data.test, *parts["test"])


@pytest.fixture
def norb(tmp_path):
    """smallNORB's files, and for each split its pairs, categories and viewpoints."""

    def write(name, array):
        kind = 0x1E3D4C55 if array.dtype == np.uint8 else 0x1E3D4C54
        shape = [*array.shape, 1, 1][: max(3, array.ndim)]
        header = np.array([kind, array.ndim, *shape], "<i4").tobytes()
        (tmp_path / name).write_bytes(header + array.tobytes())

    parts = {}
    for split, instances, n in (("training", "46789", TRAIN), ("testing", "01235", TEST)):
        stem = f"smallnorb-5x{instances}x9x18x6x2x96x96-{split}"
        pairs = images_of(n, (96, 96, 2))
        category = RANDOM.integers(0, 5, n).astype("<i4")
        limits = {"instance": 10, "label_elevation": 9, "label_azimuth": 18, "label_lighting": 6}
        views = {name: RANDOM.integers(0, most, n) for name, most in limits.items()}
        # Azimuths are stored in steps of ten degrees, of which every other one was taken.
        info = np.stack([views[name] * (2 if "azimuth" in name else 1) for name in limits], 1)
        write(f"{stem}-dat.mat.gz", np.ascontiguousarray(np.moveaxis(pairs, -1, 1)))
        write(f"{stem}-cat.mat.gz", category)
        write(f"{stem}-info.mat.gz", info.astype("<i4"))
        parts[split] = pairs, category, views
    return tmp_path, parts


def test_smallnorb_is_pairs_with_viewpoints(load, norb):
    folder, parts = norb
    data = load("smallnorb", by_name(folder))
    assert data.image_shape == (96, 96, 2)
    compare(data.train, *parts["training"])
    compare(data.test, *parts["testing"])
    assert data.train.class_names[2] == "airplanes"


def test_smallnorb_in_another_size_grey_or_of_one_camera(load, norb):
    from PIL import Image

    folder, _ = norb
    whole = load("smallnorb", by_name(folder)).train
    small = load("smallnorb", by_name(folder), image_size=48).train
    assert small.images.shape == (TRAIN, 48, 48, 2)
    for camera in range(2):
        picture = Image.fromarray(whole.images[0, ..., camera])
        resized = np.asarray(picture.resize((48, 48), Image.Resampling.LANCZOS))
        assert np.array_equal(small.images[0, ..., camera], resized)
    assert load("smallnorb", by_name(folder), grey=True).train.fingerprint == whole.fingerprint
    right = load("smallnorb", by_name(folder), column="image2").train
    assert np.array_equal(right.images, whole.images[..., 1:])
    assert set(right.extras) == set(whole.extras)


def test_a_stereo_pair_is_shown_side_by_side():
    pairs = RANDOM.random((2, 60, 60, 2))
    sides = [np.concatenate([pairs[..., :1], pairs[..., 1:]], axis=2)]
    assert np.array_equal(grid([pairs]), grid(sides))
