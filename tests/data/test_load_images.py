"""What `load_images` does whatever the source, and the bundled digits."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, load_images


def test_digits():
    data = load_images("digits")
    assert data.train.images.shape == (1500, 28, 28, 1)
    assert data.test.images.shape == (297, 28, 28, 1)
    assert (data.train.images.min(), data.train.images.max()) == (0, 255)
    assert data.train.class_names == tuple("0123456789")
    assert np.bincount(data.train.labels).min() > 130
    assert np.bincount(data.test.labels).min() > 20
    assert data.name == "digits"


def test_digits_are_split_the_same_way_whatever_the_seed():
    assert load_images("digits").test.fingerprint == load_images("digits", seed=9).test.fingerprint


def test_digits_keep_their_labels():
    train = load_images("digits").train
    zero, one = (train.images[train.labels == label].mean(axis=0)[..., 0] for label in (0, 1))
    assert zero[14, 14] < 60 < 180 < one[14, 14]


def test_digits_in_another_size_and_number():
    data = load_images("digits", image_size=(20, 32), limit=10)
    assert data.train.images.shape == (10, 20, 32, 1)
    assert len(data.test) == 297
    whole = load_images("digits", image_size=(20, 32)).train
    assert np.array_equal(data.train.images, whole.images[:10])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"limit": 0}, "`limit` must be an integer of at least 1.*limit=0"),
        ({"limit": 1.5}, "`limit`.*limit=1.5"),
        ({"test_fraction": 0}, "`test_fraction` must be between 0 and 1.*test_fraction=0"),
        ({"test_fraction": 1.0}, "`test_fraction`"),
        ({"test_fraction": "half"}, "`test_fraction`"),
        ({"seed": -1}, "`seed` must be an integer of at least 0.*seed=-1"),
        ({"image_size": 19}, "at least 20x20 pixels; received 19x19; use --image-size"),
        ({"image_size": (28, 28, 1)}, r"`image_size` must be .*image_size=\(28, 28, 1\)"),
        ({"image_size": "28"}, "`image_size` must be .*image_size='28'"),
        ({"image_size": (28.0, 28)}, "`image_size` must be"),
        ({"column": "image"}, "`column` has no meaning for the data set 'digits'"),
    ],
)
def test_unsound_arguments_are_refused(wrong, message):
    with pytest.raises(DataError, match=message):
        load_images("digits", **wrong)


@pytest.mark.parametrize("dataset", ["", None, 3])
def test_a_data_set_must_be_named(dataset):
    with pytest.raises(DataError, match="`dataset` must be a name or a path"):
        load_images(dataset)


@pytest.mark.parametrize("path", ["./nothing_here", "~/nothing_here", Path("nothing_here")])
def test_a_path_that_is_not_there_is_refused(path):
    with pytest.raises(DataError, match="no such folder or file. Received: .*nothing_here"):
        load_images(path)


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "images.csv").write_text("1,2")
    with pytest.raises(DataError, match="must be a folder or an .npz file.*images.csv"):
        load_images(tmp_path / "images.csv")


def test_a_folder_named_like_a_data_set_needs_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keras_capsule_poe.data.sources.network.is_online", lambda: False)
    for folder in ("mnist", "photos"):
        Path(folder).mkdir()
        for name in "ab":
            Image.new("L", (20, 20)).save(Path(folder, f"{name}.png"))
    with pytest.raises(DataError, match="'mnist/.*' is not prepared"):
        load_images("mnist", data_dir=tmp_path / "empty")
    for dataset in ("./mnist", Path("mnist"), "photos"):
        assert load_images(dataset).image_shape == (20, 20, 1)
