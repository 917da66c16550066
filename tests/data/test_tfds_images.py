"""Data sets of tensorflow-datasets that are made up and prepared here."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data import tfds as network
from keras_capsule_poe.data import tfds as tfds_images

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


class MadeUpUnlabelled(_MadeUp):
    FEATURES = {
        "image": tfds.features.Image(shape=(20, 20, 1)),
        "label": tfds.features.ClassLabel(num_classes=2),
    }
    EXAMPLES = {
        "train": [{"image": np.zeros((20, 20, 1), np.uint8), "label": i % 2} for i in range(6)],
        "test": [{"image": np.ones((20, 20, 1), np.uint8), "label": -1} for i in range(3)],
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


def test_splits_columns_and_labels(made_up):
    data = made_up("made_up_grey")
    assert data.train.images.shape == (30, 20, 24, 1)
    assert len(data.test) == 4
    assert data.train.class_names == ("even", "odd")
    values = data.train.images[:, 0, 0, 0]
    assert sorted(values) == list(range(30))
    assert np.array_equal(data.train.labels, values % 2)
    assert data.train.labels.dtype == np.int64


def test_tf_data_tunes_nothing(made_up, monkeypatch):
    """Its thread sleeps for up to a minute, and the end of a split waits for it."""
    as_dataset, streams = tfds.core.DatasetBuilder.as_dataset, []

    def watched(*args, **options):
        streams.append(as_dataset(*args, **options))
        return streams[-1]

    monkeypatch.setattr(tfds.core.DatasetBuilder, "as_dataset", watched)
    made_up("made_up_grey")
    assert streams and all(s.options().autotune.enabled is False for s in streams)


def test_images_without_a_label_have_none(made_up):
    """Rejected: -1 as one more class, of which figures would be made."""
    with pytest.warns(UserWarning, match="3 of the 3 images in split 'test' .*no label"):
        data = made_up("made_up_unlabelled")
    assert data.train.labels.tolist().count(1) == 3 and data.test.labels is None
    assert data.test.images.shape == (3, 20, 20, 1)


def test_some_images_without_a_label_are_told(made_up, monkeypatch):
    rows = MadeUpUnlabelled.EXAMPLES
    some = {**rows, "test": [*rows["test"][:2], *rows["train"][:2]]}
    monkeypatch.setattr(MadeUpUnlabelled, "VERSION", tfds.core.Version("1.1.0"))
    monkeypatch.setattr(MadeUpUnlabelled, "EXAMPLES", some)
    with pytest.warns(UserWarning, match="2 of the 4 images"):
        assert made_up("made_up_unlabelled").test.labels is None


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("made_up_grey", {}),
        ("made_up_grey", {"limit": 7, "seed": 3, "image_size": 21}),
        ("made_up_sizes", {"column": "image", "image_size": (24, 20), "grey": True}),
        ("made_up_deep", {"column": "deep", "test_fraction": 0.5, "limit": 1}),
    ],
)
def test_a_store_holds_the_same_images(made_up, tmp_path, name, options):
    wanted = made_up(name, **options)
    for _ in range(2):
        found = made_up(name, store=tmp_path, **options)
        assert found.train.nbytes == 0
        assert found.fingerprints == wanted.fingerprints
        for ours, theirs in ((found.train, wanted.train), (found.test, wanted.test)):
            assert np.array_equal(np.asarray(ours.images), theirs.images)
            assert np.array_equal(ours.labels, theirs.labels)
            assert ours.class_names == theirs.class_names


@pytest.mark.some(3)
@pytest.mark.parametrize("left", [0, 1, 29, 30, 33])
def test_an_interrupted_store_goes_on_in_the_midst_of_a_split(made_up, tmp_path, monkeypatch, left):
    """Blocks of one image, of which the reader stops at one."""
    monkeypatch.setattr(tfds_images, "_BATCH", 1)
    fit, fitted = tfds_images.fit_images, []

    def stop(*arguments):
        if len(fitted) == left:
            raise KeyboardInterrupt
        fitted.append(None)
        return fit(*arguments)

    monkeypatch.setattr(tfds_images, "fit_images", stop)
    with pytest.raises(KeyboardInterrupt):
        made_up("made_up_grey", store=tmp_path)
    monkeypatch.setattr(tfds_images, "fit_images", fit)
    lines = []
    found = made_up("made_up_grey", store=tmp_path, report=lines.append)
    assert found.fingerprints == made_up("made_up_grey").fingerprints
    assert any(f"goes on after {left} of 34" in line for line in lines) == (left > 0)


def test_limit_takes_the_first_images(made_up):
    whole, limited = made_up("made_up_grey"), made_up("made_up_grey", limit=7)
    assert np.array_equal(limited.train.images, whole.train.images[:7])
    assert limited.test.fingerprint == whole.test.fingerprint


def test_sizes_that_differ_are_refused_unless_resized(made_up):
    with pytest.raises(DataError, match=r"differ in size.*\(None, None, 3\)") as caught:
        made_up("made_up_sizes", column="image")
    assert caught.value.hint == "image_size"
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
    assert caught.value.hint == "column"
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
