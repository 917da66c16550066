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


def test_unsound_arguments_are_refused():
    for wrong, message in [
        ({"limit": 0}, "`limit` must be an integer of at least 1.*limit=0"),
        ({"limit": 1.5}, "`limit`.*limit=1.5"),
        ({"test_fraction": 0}, "`test_fraction` must be between 0 and 1.*test_fraction=0"),
        ({"test_fraction": 1.0}, "`test_fraction`"),
        ({"test_fraction": "half"}, "`test_fraction`"),
        ({"seed": -1}, "`seed` must be an integer of at least 0.*seed=-1"),
        ({"limit": float("inf")}, "`limit`.*limit=inf"),
        ({"limit": True}, "`limit`.*limit=True"),
        ({"test_fraction": float("nan")}, "`test_fraction`"),
        ({"seed": 1.0}, "`seed`"),
        ({"grey": "no"}, "`grey` must be True or False. Received: grey='no'"),
        ({"skip_broken": None}, "`skip_broken` must be True or False"),
        ({"smallest": 0}, "`smallest` must be an integer"),
        ({"image_size": 19, "smallest": 20}, "at least 20x20 pixels.* Received: 19x19"),
        ({"image_size": (20, 19), "smallest": 20}, "Received: 20x19"),
        ({"image_size": 0}, "`image_size` must be .*from 1 to 8192. Received: image_size=0"),
        ({"image_size": 8193}, "`image_size` must be"),
        ({"image_size": 10**400}, "`image_size` must be"),
        ({"image_size": (float("inf"), 28)}, "`image_size` must be"),
        ({"image_size": (True, True)}, "`image_size` must be"),
        ({"image_size": True}, "`image_size` must be"),
        ({"image_size": "32"}, "`image_size` must be .*image_size='32'"),
        ({"image_size": (28, 28, 1)}, r"`image_size` must be .*image_size=\(28, 28, 1\)"),
        ({"image_size": "28"}, "`image_size` must be .*image_size='28'"),
        ({"image_size": (28.0, 28)}, "`image_size` must be"),
    ]:
        with pytest.raises(DataError, match=message) as caught:
            load_images("digits", **wrong)
        assert len(str(caught.value)) < 250


@pytest.mark.parametrize("option", ["column", "data_dir", "manual_dir"])
def test_options_without_a_meaning_are_refused(option, tmp_path):
    message = f"`{option}` has no meaning for the data set 'digits'. Received: {option}='x'"
    with pytest.raises(DataError, match=message) as caught:
        load_images("digits", **{option: "x"})
    assert caught.value.hint == f"leave_out:{option}"
    Image.new("L", (20, 20)).save(tmp_path / "a.png")
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 20, 20), np.uint8))
    with pytest.raises(DataError, match=f"`{option}` has no meaning for a folder of images"):
        load_images(tmp_path, **{option: "x"})
    if option != "column":
        with pytest.raises(DataError, match=f"`{option}` has no meaning for an .npz file"):
            load_images(tmp_path / "a.npz", **{option: "x"})


def test_images_of_any_size_will_do_unless_the_model_needs_larger_ones():
    assert load_images("digits", image_size=1).image_shape == (1, 1, 1)
    assert load_images("digits", smallest=28).image_shape == (28, 28, 1)
    with pytest.raises(DataError, match="at least 29x29 .* Received: 28x28") as caught:
        load_images("digits", smallest=29)
    assert caught.value.hint == "image_size"


def test_a_data_set_must_be_named():
    for dataset in ["", None, 3]:
        with pytest.raises(DataError, match="`dataset` must be a name or a path"):
            load_images(dataset)


@pytest.mark.parametrize("path", ["./nothing_here", "~/nothing_here", Path("nothing_here")])
def test_a_path_that_is_not_there_is_refused(path):
    with pytest.raises(DataError, match="no such folder or file. Received: .*nothing_here"):
        load_images(path)


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "images.csv").write_text("1,2")
    with pytest.raises(
        DataError, match="must be a folder of images, a .zip file.*images.csv. .*as `labels`"
    ):
        load_images(tmp_path / "images.csv")


def test_a_folder_named_like_a_data_set_needs_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keras_capsule_poe.data.tfds.is_online", lambda: False)
    for folder in ("mnist", "photos"):
        Path(folder).mkdir()
        for name in "ab":
            Image.new("L", (20, 20)).save(Path(folder, f"{name}.png"))
    with pytest.raises(DataError, match="'mnist/.*' is not prepared"):
        load_images("mnist", data_dir=tmp_path / "empty")
    for dataset in ("./mnist", Path("mnist"), "photos"):
        assert load_images(dataset).image_shape == (20, 20, 1)


def test_a_folder_with_the_name_of_a_data_set_is_mentioned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_images("digits", limit=9).notes == ()
    Path("digits").mkdir()
    note = "digits is the data set of this name. The folder is ./digits."
    assert note in load_images("digits", limit=9).notes
    for name in "ab":
        Image.new("L", (20, 20)).save(Path("digits", f"{name}.png"))
    assert load_images("./digits").notes == (
        "1 test image is also a training image, pixel by pixel.",
    )


@pytest.mark.parametrize("option", ["grey", "skip_broken"])
def test_switches_without_a_meaning_are_refused(option, tmp_path):
    message = f"`{option}` has no meaning for the data set 'digits'. Received: {option}=True"
    with pytest.raises(DataError, match=message) as caught:
        load_images("digits", **{option: True})
    assert caught.value.hint == f"leave_out:{option}"
    np.savez(tmp_path / "a.npz", images=np.zeros((8, 20, 20), np.uint8))
    if option == "skip_broken":
        with pytest.raises(DataError, match=f"`{option}` has no meaning for an .npz file"):
            load_images(tmp_path / "a.npz", skip_broken=True)
