"""Data sets of tensorflow-datasets that are not prepared, or that there are not."""

import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data import tfds as network


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(network, "is_online", lambda: False)

    def refuse(*arguments, **keywords):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_unknown_names(offline):
    for name, advice in [
        ("fashion-mnist", "did you mean fashion_mnist"),
        ("mnst", "did you mean mnist"),
        ("digit", "did you mean digits"),
        ("qqqqqq", "use digits, mnist or fashion_mnist"),
        ("huggingface:mnist", "none of them"),
        ("kubric:movi_a", "none of them"),
        ("!", "none of them"),
    ]:
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
    assert caught.value.hint == "data_dir"
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


@pytest.mark.long
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
