"""Data sets of tensorflow-datasets: their splits, columns and formats."""

import numpy as np
import pytest
import tensorflow_datasets as tfds
from scipy.io import savemat
from tensorflow_datasets.image_classification import mnist as mnist_builder

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data import tfds as network
from keras_capsule_poe.data import tfds as tfds_images
from keras_capsule_poe.io.pictures import grid

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
    with pytest.raises(DataError, match="one of image, mask. Received: column=None") as caught:
        made_up("made_up_sizes")
    assert caught.value.hint == "column"
    with pytest.raises(DataError, match="one of image, mask. Received: column='masks'"):
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
    with pytest.raises(DataError, match="column of images.* there is none. .* columns text"):
        made_up("made_up_text")
    with pytest.raises(DataError, match="must have a split 'train'.* Received: splits a, b"):
        made_up("made_up_no_train")


class MadeUpSeveral(_MadeUp):
    FEATURES = {
        **MadeUpGrey.FEATURES,
        "coarse": tfds.features.ClassLabel(names=["low", "high"]),
    }
    EXAMPLES = {
        split: [{**row, "coarse": int(row["id"]) > 4} for row in grey_rows(n)]
        for split, n in (("train", 12), ("test", 4), ("validation", 3), ("extra", 2))
    }


def test_splits_that_are_not_used_are_named(made_up):
    data = made_up("made_up_several")
    assert "Left out: the splits validation (3 images), extra (2 images)." in data.notes
    # Of equal images, too.
    assert any("4 test images are training images, too, pixel" in note for note in data.notes)


def test_the_column_of_labels_may_be_chosen(made_up):
    data = made_up("made_up_several", label_column="coarse")
    assert data.train.class_names == ("low", "high")
    assert data.train.labels.tolist().count(1) == 7
    with pytest.raises(DataError, match="one of label, coarse. .*label_column='id'") as caught:
        made_up("made_up_several", label_column="id")
    assert caught.value.hint == "label_column"


def test_files_that_are_whole_are_not_to_be_deleted(made_up, monkeypatch):
    """Rejected: the advice to delete prepared data because of a full disk or missing rights."""
    made_up("made_up_grey")

    def fail(*arguments, **options):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(tfds, "as_numpy", fail)
    with pytest.raises(DataError, match="cannot be read from .*Input/output error") as caught:
        made_up("made_up_grey")
    assert "delete" not in str(caught.value)


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
