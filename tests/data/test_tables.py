"""Labels of image files in a CSV file."""

import shutil

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, load_images

RANDOM = np.random.default_rng(0)
WORDS = ("cat", "dog")


@pytest.fixture
def photos(tmp_path):
    """Eight images, whose pixels are their numbers."""
    for i in range(8):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 8), i, np.uint8)).save(tmp_path / "photos" / f"{i}.png")
    return tmp_path / "photos"


def table(path, pattern="{}.png", header="filename,label", n=8, form="{},{}\n", words=WORDS):
    rows = [form.format(pattern.format(i), words[i % 2]) for i in range(n)]
    path.write_text(f"{header}\n" * bool(header) + "".join(rows))
    return path


def check(data, names=WORDS, n=8):
    assert data.train.class_names == data.test.class_names == names
    for part in (data.train, data.test):
        assert part.labels.tolist() == [
            number % 2 for number in np.asarray(part.images)[:, 0, 0, 0]
        ]
    assert len(data.train) + len(data.test) == n


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"pattern": "photos/{}.png"},
        {"pattern": "./photos/{}.png"},
        {"pattern": "photos\\{}.png"},
        {"pattern": "/home/someone/photos/{}.png"},
        {"pattern": "{}", "header": "id,breed"},
        {"pattern": "{}.jpg", "header": "image_id,Class"},
        {"header": ""},
        {"header": "\ufefffile;category", "form": "{};{}\n"},
        {"header": "", "form": "{} {}\n"},
        {"header": "Image Name\tTarget", "form": '"{}"\t"{}"\n'},
        {"header": "n,filename,label,age", "form": "7,{},{},3\n"},
    ],
)
def test_forms_of_tables(photos, tmp_path, written):
    path = table(tmp_path / "labels.csv", **written)
    data = load_images(photos, labels=path, test_fraction=0.3)
    check(data)
    assert sum(f"of {path}" in note and "Labels: column" in note for note in data.notes) == 1
    assert any("Not used" in note for note in data.notes) == written.get("header", "").startswith(
        "n,"
    )


@pytest.mark.parametrize(
    ("words", "names"),
    [(("10", "9"), ("9", "10")), (("1.0", "0.0"), ("0", "1")), (("01", "1"), ("01", "1"))],
)
def test_labels_that_are_numbers_have_the_order_of_numbers(photos, tmp_path, words, names):
    data = load_images(photos, labels=table(tmp_path / "l.csv", words=words), test_fraction=0.3)
    assert data.train.class_names == names


def test_what_has_no_label_or_no_image_is_counted_and_named(photos, tmp_path):
    path = table(tmp_path / "labels.csv", n=6)
    path.write_text(f"{path.read_text()}6.png,\n99.png,cat\n")
    for store in (None, tmp_path / "store"):
        data = load_images(photos, labels=path, test_fraction=0.4, store=store)
        check(data, n=6)
        assert f"Left out: 2 files without a label in {path} ({photos}/6.png first)." in data.notes
        assert f"Left out: 1 row of {path} without an image (99.png first)." in data.notes


def test_the_table_may_lie_among_the_images_and_in_a_zip(photos, tmp_path):
    table(photos / "labels.csv")
    data = load_images(photos, labels="labels.csv", test_fraction=0.3)
    check(data)
    # It is no file of another kind.
    assert data.notes == (f"Labels: column label of {photos}/labels.csv.",)
    path = shutil.make_archive(str(tmp_path / "packed"), "zip", photos)
    check(load_images(path, labels="labels.csv", test_fraction=0.3))


def test_one_table_for_both_splits(tmp_path):
    for part, numbers in (("train", range(8)), ("test", range(10, 14))):
        (tmp_path / part).mkdir()
        for i in numbers:
            Image.fromarray(np.full((8, 8), i, np.uint8)).save(tmp_path / part / f"{i}.png")
    data = load_images(tmp_path, labels=table(tmp_path / "labels.csv", n=14))
    check(data, n=12)
    # Equal names are told apart by their folders.
    (tmp_path / "test" / "10.png").rename(tmp_path / "test" / "0.png")
    with pytest.raises(DataError, match="name every file by its path. Received: 0.png"):
        load_images(tmp_path, labels=tmp_path / "labels.csv")
    rows = ["filename,label", *(f"train/{i}.png,{WORDS[i % 2]}" for i in range(8))]
    (tmp_path / "labels.csv").write_text("\n".join([*rows, "test/0.png,dog", "test/11.png,cat"]))
    data = load_images(tmp_path, labels=tmp_path / "labels.csv")
    assert sorted(data.test.labels) == [0, 1] and len(data.train) == 8


@pytest.mark.parametrize("place", [".", ".."])
def test_a_table_beside_the_images_is_named(photos, tmp_path, place):
    path = table(photos / place / "labels.csv")
    table(photos / place / "other.csv", pattern="nothing-{}.png")
    data = load_images(photos)
    assert data.train.labels is None
    assert "labels.csv" in data.train.label_file and path.samefile(data.train.label_file)
    assert any("`labels` reads them from a file" in note for note in data.notes)
    (tmp_path / "class").mkdir()
    photos.rename(tmp_path / "class" / "photos")
    assert place == ".." or any("of one class" in n for n in load_images(tmp_path / "class").notes)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "CSV file that can be read"),
        (b"\xff\xfe\x00", "in UTF-8"),
        (b"", "a column of file names and one of labels"),
        (b"filename\n0.png\n", "a column of file names and one of labels"),
        (b"filename,age,size\n0.png,3,4\n", "`label_column` must name .* one of age, size"),
        (b"filename,label\nx.png,cat\n", "no image has a label .* names x.png. .*0.png"),
        (b"filename,label\n0.png,cat\n0.png,dog\n", "one label. Received: cat and dog for 0.png"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(photos, tmp_path, content, words):
    path = tmp_path / "labels.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load_images(photos, labels=path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_the_column_of_labels_may_be_chosen(photos, tmp_path):
    path = table(tmp_path / "labels.csv", header="filename,species,age", form="{},{},3\n")
    check(load_images(photos, labels=path, label_column="species", test_fraction=0.3))
    with pytest.raises(DataError, match="`label_column`.*'breed'") as caught:
        load_images(photos, labels=path, label_column="breed")
    assert caught.value.hint == "label_column"


def test_labels_without_a_meaning_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", images=RANDOM.integers(0, 256, (9, 8, 8), dtype=np.uint8))
    for dataset in (tmp_path / "a.npz", "digits"):
        with pytest.raises(DataError, match="`labels` has no meaning for"):
            load_images(dataset, labels="labels.csv")
