"""Data sets of the package `datasets`: objects, saved folders and parquet files."""

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data.arrays import image_data

try:
    import datasets
except ImportError:
    datasets = None

needs_datasets = pytest.mark.skipif(datasets is None, reason="the package datasets is missing")
X = np.random.default_rng(0).integers(0, 256, (12, 6, 7), dtype=np.uint8)
Y = np.arange(12) % 2


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Files that `datasets` makes of parquet files go to a temporary folder."""
    if datasets is not None:
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def made(n=12, labels=None, **features):
    """A `Dataset` of n images in classes dog and cat, in this order."""
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["dog", "cat"])}
    rows = {
        "image": [Image.fromarray(image) for image in X[:n]],
        "label": (Y if labels is None else labels)[:n],
        "id": range(n),
    }
    kinds = datasets.Features({**kinds, "id": datasets.Value("int64"), **features})
    return datasets.Dataset.from_dict(rows, features=kinds)


def check(data, tests=2):
    known = {image.tobytes(): label for image, label in zip(X, Y)}
    assert data.train.class_names == data.test.class_names == ("dog", "cat")
    assert len(data.train) == (12 if tests == 4 else 10) and len(data.test) == tests
    for image, label in zip(data.train.images, data.train.labels):
        assert known[image.tobytes()] == label
    assert any("columns id" in note for note in data.notes)


@needs_datasets
def test_objects_and_saved_folders(tmp_path):
    whole = made()
    parts = datasets.DatasetDict(train=whole, test=made(4), extra=made(3))
    for found in (whole, whole.with_format("numpy"), whole.shuffle(seed=1)):
        check(load_images(found))
    check(load_images(parts), tests=4)
    assert any("the splits extra (3 rows)" in note for note in load_images(parts).notes)
    for name, each in (("one", whole), ("several", parts)):
        each.save_to_disk(tmp_path / name)
        for dataset in (each, tmp_path / name):
            data = load_images(dataset)
            assert data.fingerprints == load_images(each).fingerprints
            stored = load_images(dataset, store=tmp_path / "stores")
            assert stored.train.nbytes == 0 and stored.fingerprints == data.fingerprints


@needs_datasets
def test_parquet_files(tmp_path):
    (tmp_path / "of hub" / "data").mkdir(parents=True)
    made().to_parquet(tmp_path / "of hub" / "data" / "train-00000-of-00001.parquet")
    made(4).to_parquet(tmp_path / "of hub" / "data" / "test-00000-of-00001.parquet")
    check(load_images(tmp_path / "of hub"), tests=4)
    check(load_images(tmp_path / "of hub" / "data" / "train-00000-of-00001.parquet"))


@needs_datasets
@pytest.mark.parametrize("form", ["bytes", "struct"])
def test_parquet_files_of_other_programs(tmp_path, form):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    files = []
    for image in X:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(file.getvalue())
    files = files if form == "bytes" else [{"bytes": each, "path": None} for each in files]
    columns = {"picture": files, "kind": [("dog", "cat")[y] for y in Y]}
    folder = tmp_path / "files"
    folder.mkdir()
    parquet.write_table(pyarrow.table(columns), folder / "all.parquet")
    data = load_images(folder, label_column="kind")
    assert data.train.class_names == ("cat", "dog") and len(data.train) == 10
    assert any("columns kind" in note for note in load_images(folder).notes)


@needs_datasets
def test_images_without_a_label_are_left_out_and_counted():
    some = load_images(made(labels=np.where(np.arange(12) < 4, -1, Y)))
    assert len(some.train) + len(some.test) == 8
    assert any("4 images of split train" in note and "Left out" in note for note in some.notes)
    none = datasets.DatasetDict(train=made(), test=made(4, labels=np.full(12, -1)))
    check(load_images(none))
    assert any("4 images of split test" in note for note in load_images(none).notes)


@needs_datasets
def test_rows_that_cannot_be_read_are_named():
    features = datasets.Features({"image": datasets.Image()})
    rows = [Image.fromarray(image) for image in X]
    broken = datasets.Dataset.from_dict(
        {"image": [*rows, None, {"bytes": b"no image", "path": None}]}, features=features
    )
    with pytest.raises(DataError, match="row 1[23] of split train .* (is missing|is broken)"):
        load_images(broken)
    assert len(load_images(broken, skip_broken=True).skipped) == 2


@needs_datasets
def test_what_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    whole = made()
    for dataset, options, words in (
        (whole.to_iterable_dataset(), {}, "whose rows have numbers. Received: IterableDataset"),
        (whole.remove_columns("image"), {}, "`column` must name .* columns label, id"),
        (whole, {"column": "picture"}, "`column` must name .* one of image. .*'picture'"),
        (whole, {"label_column": "kind"}, "`label_column` must name .* label, id. .*'kind'"),
        (whole, {"train_dir": "a"}, "`train_dir` has no meaning"),
        (datasets.DatasetDict(a=whole, b=whole), {}, "a split 'train'. Received: splits a, b"),
        (tmp_path, {}, "cannot be read by the package `datasets`"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            load_images(dataset, **options)
        assert "\n" not in str(caught.value)


@needs_datasets
def test_fit_takes_a_data_set_in_the_order_of_its_rows():
    data = image_data(made(), validation_data=made(4))
    assert np.array_equal(data.train.images[..., 0], X) and len(data.held_out) == 4
    assert [data.train.class_names[label] for label in data.train.labels] == ["dog", "cat"] * 6
    assert data.notes == ("4 held-out images are training images, too, pixel by pixel.",)
    with pytest.raises(DataError, match="Give its splits"):
        image_data(datasets.DatasetDict(train=made()))


def test_a_parquet_file_among_images_is_another_file(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.fromarray(X[i]).save(tmp_path / name / f"{i}.png")
    for name in ("metadata.parquet", "state.json"):
        (tmp_path / name).write_bytes(b"")
    data = load_images(tmp_path)
    assert data.train.class_names == ("a", "b")
    assert any("1 .parquet" in note for note in data.notes)


def test_without_the_package_one_line_names_it(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"")
    program = (
        "import sys; sys.modules['datasets'] = None\n"
        "from keras_capsule_poe.data import load_images\n"
        "try:\n    load_images(sys.argv[1])\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("DataError") and "pip install 'keras-capsule-poe[datasets]'" in said
