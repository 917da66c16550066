"""Data sets of tensorflow-datasets: real ones where they are prepared, and made-up ones."""

import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data.sources import network

RANDOM = np.random.default_rng(0)


class _MadeUp(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A data set that needs no download; its subclasses say what it holds."""

    VERSION = tfds.core.Version("1.0.0")
    FEATURES: dict = {}
    EXAMPLES: dict = {}

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(dict(self.FEATURES))
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(rows) for split, rows in self.EXAMPLES.items()}

    def _generate_examples(self, rows):
        yield from enumerate(rows)


def grey_rows(n):
    return [
        {"image": np.full((20, 24, 1), i, np.uint8), "label": i % 2, "id": str(i)} for i in range(n)
    ]


class MadeUpGrey(_MadeUp):
    FEATURES = {
        "image": tfds.features.Image(shape=(20, 24, 1)),
        "label": tfds.features.ClassLabel(names=["even", "odd"]),
        "id": tfds.features.Text(),
    }
    EXAMPLES = {"train": grey_rows(30), "validation": grey_rows(4)}


class MadeUpSizes(_MadeUp):
    FEATURES = {
        "image": tfds.features.Image(shape=(None, None, 3)),
        "mask": tfds.features.Image(shape=(None, None, 1)),
    }
    EXAMPLES = {
        "train": [
            {
                "image": np.full((20 + i, 30, 3), (10 * i, 0, 255), np.uint8),
                "mask": np.full((20 + i, 30, 1), i, np.uint8),
            }
            for i in range(10)
        ]
    }


class MadeUpDeep(_MadeUp):
    FEATURES = {
        "deep": tfds.features.Image(shape=(20, 20, 1), dtype=np.uint16),
        "depth": tfds.features.Image(shape=(20, 20, 1), dtype=np.float32),
        "alpha": tfds.features.Image(shape=(20, 20, 4)),
    }
    EXAMPLES = {
        "train": [
            {
                "deep": np.full((20, 20, 1), 257 * i, np.uint16),
                "depth": np.full((20, 20, 1), i, np.float32),
                "alpha": np.zeros((20, 20, 4), np.uint8),
            }
            for i in range(4)
        ]
    }


class MadeUpText(_MadeUp):
    FEATURES = {"text": tfds.features.Text()}
    EXAMPLES = {"train": [{"text": "word"}]}


class MadeUpNoTrain(_MadeUp):
    FEATURES = {"image": tfds.features.Image(shape=(20, 20, 1))}
    EXAMPLES = {
        "a": [{"image": np.zeros((20, 20, 1), np.uint8)}],
        "b": [{"image": np.zeros((20, 20, 1), np.uint8)}],
    }


@pytest.fixture(scope="module")
def made_up_dir(tmp_path_factory):
    """Where made-up data sets are prepared, each once."""
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture
def made_up(made_up_dir, monkeypatch):
    """Loads a made-up data set as a user with a network does."""
    monkeypatch.setattr(network, "is_online", lambda: True)
    return lambda name, **keywords: load_images(name, data_dir=made_up_dir, **keywords)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(network, "is_online", lambda: False)

    def refuse(*arguments, **keywords):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_splits_columns_and_labels(made_up):
    data = made_up("made_up_grey")
    assert data.train.images.shape == (30, 20, 24, 1)
    assert len(data.test) == 4
    assert data.train.class_names == ("even", "odd")
    values = data.train.images[:, 0, 0, 0]
    assert sorted(values) == list(range(30))
    assert np.array_equal(data.train.labels, values % 2)
    assert data.train.labels.dtype == np.int64


def test_limit_takes_the_first_images(made_up):
    whole, limited = made_up("made_up_grey"), made_up("made_up_grey", limit=7)
    assert np.array_equal(limited.train.images, whole.train.images[:7])
    assert limited.test.fingerprint == whole.test.fingerprint


def test_sizes_that_differ_are_refused_unless_resized(made_up):
    with pytest.raises(DataError, match=r"differ in size.*\(None, None, 3\)") as caught:
        made_up("made_up_sizes", column="image")
    assert caught.value.mend == "image_size"
    data = made_up("made_up_sizes", column="image", image_size=(24, 20), test_fraction=0.2)
    assert data.train.images.shape == (8, 24, 20, 3)
    assert data.train.labels is None
    reds = np.concatenate([data.train.images, data.test.images])[:, 0, 0, 0]
    assert sorted(reds) == [10 * i for i in range(10)]
    limited = made_up("made_up_sizes", column="image", image_size=(24, 20), limit=3, grey=True)
    assert limited.train.images.shape == (3, 24, 20, 1)


def test_one_of_several_columns_must_be_chosen(made_up):
    with pytest.raises(DataError, match="available: image, mask. Received: none") as caught:
        made_up("made_up_sizes")
    assert caught.value.mend == "column"
    with pytest.raises(DataError, match="available: image, mask. Received: 'masks'"):
        made_up("made_up_sizes", column="masks")
    assert made_up("made_up_sizes", column="mask", image_size=20).image_shape == (20, 20, 1)


def test_pixels_of_other_dtypes(made_up):
    data = made_up("made_up_deep", column="deep", test_fraction=0.5)
    values = np.concatenate([data.train.images, data.test.images])[:, 0, 0, 0]
    assert sorted(values) == [0, 1, 2, 3]
    with pytest.raises(DataError, match=r"'depth'.*floats in \[0, 1\].*from 0 to 3"):
        made_up("made_up_deep", column="depth")
    with pytest.raises(DataError, match=r"'alpha'.*grey or RGB.*\(20, 20, 4\)"):
        made_up("made_up_deep", column="alpha")


def test_data_without_images_or_a_training_split_are_refused(made_up):
    with pytest.raises(DataError, match="no column of images.* Received: columns text"):
        made_up("made_up_text")
    with pytest.raises(DataError, match="must have a split 'train'.* Received: splits a, b"):
        made_up("made_up_no_train")


def test_damaged_files_are_refused(made_up, made_up_dir):
    made_up("made_up_grey")
    for file in (made_up_dir / "made_up_grey").rglob("*train.tfrecord*"):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match="cannot be read; delete .*prepare it again") as caught:
            made_up("made_up_grey")
        assert "\n" not in str(caught.value)
        file.write_bytes(whole)


def test_an_incomplete_folder_is_refused(made_up, tmp_path):
    folder = tmp_path / "made_up_grey" / "1.0.0"
    folder.mkdir(parents=True)
    with pytest.raises(DataError, match=f"incomplete; delete {folder}"):
        load_images("made_up_grey", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("fashion-mnist", "did you mean fashion_mnist"),
        ("mnst", "did you mean mnist"),
        ("digit", "did you mean digits"),
        ("qqqqqq", "use digits, mnist or fashion_mnist"),
        ("huggingface:mnist", "none of them"),
        ("kubric:movi_a", "none of them"),
        ("!", "none of them"),
    ],
)
def test_unknown_names(offline, name, advice):
    with pytest.raises(DataError, match=f"Received: '{name}'.*{advice}"):
        load_images(name)


@pytest.mark.parametrize("name", ["mnist_corrupted/fig", "mnist_corrupted:9.9.9"])
def test_unknown_configurations_and_versions(offline, name):
    with pytest.raises(DataError, match=f"1.0.0.*: identity, shot.* Received: '{name}'"):
        load_images(name)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "mnist_corrupted/fog"])
def test_without_network_and_data_it_fails_at_once_with_advice(offline, tmp_path, name):
    start = time.monotonic()
    with pytest.raises(DataError, match="is not prepared in .* neither a network") as caught:
        load_images(name, data_dir=tmp_path)
    assert time.monotonic() - start < 15
    assert caught.value.mend == "data_dir"
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_silent_network_is_given_up_soon(monkeypatch):
    monkeypatch.setattr(network, "TIMEOUT_SECONDS", 0.1)
    released = threading.Event()

    def wait(*_):
        released.wait(5)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", wait)
    start = time.monotonic()
    assert not network.is_online()
    assert time.monotonic() - start < 3
    released.set()


def test_a_refused_connection_means_no_network(monkeypatch):
    def refuse(*_):
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert not network.is_online()


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [(None, ("storage.googleapis.com", 443)), ("http://proxy.test:3128", ("proxy.test", 3128))],
)
def test_the_connection_that_is_tried(monkeypatch, proxy, expected):
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": proxy} if proxy else {})
    tried = []

    class Connection:
        def close(self):
            pass

    def connect(address, timeout):
        tried.append(address)
        return Connection()

    monkeypatch.setattr(socket, "create_connection", connect)
    assert network.is_online()
    assert tried == [expected]


@pytest.fixture
def archives(tmp_path):
    """A folder with files named like the archives of MNIST and of Fashion-MNIST."""
    folder = tmp_path / "archives"
    folder.mkdir()
    for kind in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{kind}-ubyte.gz").write_bytes(b"")
    return folder


def test_archives_of_each_data_set_are_unpacked_apart(offline, archives, tmp_path, monkeypatch):
    calls = {}

    def prepare(builder, *, download_dir, download_config):
        calls[builder.name] = Path(download_dir), Path(download_config.manual_dir)
        raise OSError("stop here")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", prepare)
    for name in ("mnist", "fashion_mnist"):
        with pytest.raises(DataError, match=r"could not be prepared \(stop here\)"):
            load_images(name, data_dir=tmp_path, manual_dir=archives)
    assert calls["mnist"][0] != calls["fashion_mnist"][0]
    assert {manual for _, manual in calls.values()} == {archives}
    assert all(tmp_path in download.parents for download, _ in calls.values())


def test_false_archives_are_refused_in_one_line(offline, archives, tmp_path):
    with pytest.raises(DataError, match="could not be prepared .*wrong checksum") as caught:
        load_images("mnist", data_dir=tmp_path, manual_dir=archives)
    assert "\n" not in str(caught.value)


def test_missing_archives_are_named(offline, archives, tmp_path):
    (archives / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match="put t10k-images-idx3-ubyte.gz there. Received: .*arch"):
        load_images("mnist", data_dir=tmp_path, manual_dir=archives)
    with pytest.raises(DataError, match="`manual_dir` must be an existing folder"):
        load_images("mnist", data_dir=tmp_path, manual_dir=tmp_path / "none")


def test_fashion_mnist_itself(offline):
    root = Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
    if not list(root.glob("fashion_mnist/*/dataset_info.json")):
        pytest.skip("Fashion-MNIST is not prepared; set TFDS_DATA_DIR to where it is")
    data = load_images("fashion_mnist")
    assert data.train.images.shape == (60000, 28, 28, 1)
    assert data.test.images.shape == (10000, 28, 28, 1)
    assert np.bincount(data.train.labels).tolist() == [6000] * 10
    assert np.bincount(data.test.labels).tolist() == [1000] * 10
    assert data.train.class_names[9] == "Ankle boot"
    # The mean and standard deviation that are known of the training images.
    assert data.train.images.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
    assert data.train.images.std() / 255 == pytest.approx(0.3530, abs=1e-4)
    assert load_images("fashion_mnist", limit=100).train.fingerprint == (
        data.train.head(100).fingerprint
    )
