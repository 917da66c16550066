"""Folders as people have them: names of splits, classes, formats, transparency, many bits."""

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, ImageData, ImageSet, load_images
from keras_capsule_poe.data.folders import split_of
from keras_capsule_poe.data.mapping import RowView
from keras_capsule_poe.data.pixels import check_contrast

RANDOM = np.random.default_rng(0)


def write(path, value=None, **options):
    """Writes a random grey image, or one of a constant value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if value is None:
        array = RANDOM.integers(0, 256, (12, 12), dtype=np.uint8)
    else:
        array = np.full((12, 12), value, np.uint8)
    Image.fromarray(array).save(path, **options)
    return path


def fill(root, first, classes="ab", n=4):
    """Writes n images of each class, numbered from `first` on by the value of their pixels."""
    for k, name in enumerate(classes):
        for i in range(n):
            write(root / name / f"{i}.png", first + k * n + i)
    return root


def values(part):
    return sorted(part.images[:, 0, 0, 0].tolist())


def test_names_of_splits():
    for name, split in [
        *((name, "train") for name in ("train", "Training", "TRAIN", "seg_train", "train2017")),
        *((name, "test") for name in ("test", "testing", "Test_Images", "asl-test", "seg_test")),
        *(
            (name, "validation")
            for name in ("val", "valid", "Validation", "dev", "eval", "val2017")
        ),
        *((name, None) for name in ("trainers", "latest", "contest", "values", "devil", "0", "")),
    ]:
        assert split_of(name) == split


@pytest.mark.parametrize(
    ("train", "test"),
    [("training", "testing"), ("seg_train", "seg_test"), ("Train", "VAL"), ("train", "dev")],
)
def test_folders_with_usual_names_are_splits(tmp_path, train, test):
    fill(tmp_path / train, 0)
    fill(tmp_path / test, 100)
    data = load_images(tmp_path)
    assert data.train.class_names == data.test.class_names == ("a", "b")
    assert values(data.train) == list(range(8)) and values(data.test) == list(range(100, 108))
    assert data.held_out is None


def test_validation_images_are_held_out_if_there_are_test_images(tmp_path):
    for first, name in ((0, "train"), (100, "test"), (200, "val")):
        fill(tmp_path / name, first)
    data = load_images(tmp_path)
    assert values(data.held_out) == list(range(200, 208))
    assert data.held_out.class_names == ("a", "b")
    assert data.class_counts() == ("training/held-out/test images of 2 classes: a 4/4/4, b 4/4/4")


def test_archives_that_repeat_a_folder_are_unpacked_in_mind(tmp_path):
    fill(tmp_path / "archive" / "seg_train" / "seg_train", 0)
    fill(tmp_path / "archive" / "seg_test" / "seg_test", 100)
    data = load_images(tmp_path)
    assert data.train.class_names == ("a", "b") and values(data.test) == list(range(100, 108))


def test_training_images_alone_give_some_to_test(tmp_path):
    fill(tmp_path / "train", 0)
    data = load_images(tmp_path)
    assert data.train.class_names == ("a", "b") and sorted(data.test.labels) == [0, 1]
    assert any("train is the only folder" in note for note in data.notes)


def test_test_images_without_classes_are_left_out_and_named(tmp_path):
    fill(tmp_path / "train", 0)
    loose = write(tmp_path / "test" / "0.png", 100)
    data = load_images(tmp_path)
    assert values(data.train) + values(data.test) != [] and 100 not in values(data.test)
    assert data.train.class_names == ("a", "b")
    assert any(str(loose) in note and "Left out" in note for note in data.notes)


def test_a_class_that_is_called_train_is_no_split(tmp_path):
    fill(tmp_path, 0, ("bus", "car", "train"))
    assert load_images(tmp_path).train.class_names == ("bus", "car", "train")


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        (("train", "training", "test"), "one folder of train images. Received: train, training"),
        (("test", "val"), "must hold training images, too"),
        (("test",), "must hold training images, too"),
        (("fold1", "fold2"), "may be splits .* Received: fold1, fold2, each with a, b"),
    ],
)
def test_what_may_be_a_split_is_asked_for(tmp_path, folders, words):
    for name in folders:
        fill(tmp_path / name, 0)
    with pytest.raises(DataError, match=words) as caught:
        load_images(tmp_path)
    assert caught.value.hint == "train_dir"


def test_folders_may_be_named(tmp_path):
    fill(tmp_path / "fold1", 0)
    fill(tmp_path / "fold2", 100)
    data = load_images(tmp_path, train_dir=tmp_path / "fold1", test_dir=tmp_path / "fold2")
    assert values(data.train) == list(range(8)) and values(data.test) == list(range(100, 108))
    whole = load_images(tmp_path, train_dir=tmp_path)
    assert whole.train.class_names == ("fold1", "fold2")
    with pytest.raises(DataError, match="`test_dir` needs `train_dir`"):
        load_images(tmp_path, test_dir=tmp_path / "fold2")
    with pytest.raises(DataError, match="`train_dir` has no meaning"):
        load_images("digits", train_dir=tmp_path)


@pytest.mark.parametrize("held", [(), ("notes.txt",), (".hidden.png", "__MACOSX/a.png")])
def test_chosen_folders_without_images_are_refused(tmp_path, held):
    fill(tmp_path / "full", 0)
    (tmp_path / "bare").mkdir()
    for name in held:
        write(tmp_path / "bare" / f"{name}.png").rename(tmp_path / "bare" / name)
    full, bare = {"train_dir": tmp_path / "full"}, {"train_dir": tmp_path / "bare"}
    with pytest.raises(DataError, match="bare holds no images"):
        load_images(tmp_path, **bare)
    with pytest.raises(DataError, match=r"`test_dir` must hold images\. Received: .*bare"):
        load_images(tmp_path, **full, test_dir=tmp_path / "bare")
    # Runs of earlier versions read what they read.
    if held != (".hidden.png", "__MACOSX/a.png"):
        data = load_images(tmp_path, **full, test_dir=tmp_path / "bare", data_version=2)
        assert len(data.train) + len(data.test) == 8


def test_the_image_that_takes_the_labels_away_is_named(tmp_path):
    fill(tmp_path, 0)
    loose = write(tmp_path / "logo.png")
    data = load_images(tmp_path)
    assert data.train.labels is None and data.train.unlabelled == str(loose)
    assert data.notes == (f"The images have no labels: {loose} lies outside the class folders.",)


def test_any_format_of_pillow_is_read_and_others_are_counted(tmp_path):
    kinds = ("ppm", "jfif", "pcx", "tga", "ico", "PNG")
    for i, kind in enumerate(kinds):
        pixels = np.repeat(RANDOM.integers(0, 256, (16, 16, 1), dtype=np.uint8), 3, axis=2)
        Image.fromarray(pixels).save(tmp_path / f"{i}.{kind}")
    for name in ("notes.txt", "more.txt", "a.heic", "Makefile"):
        (tmp_path / name).write_text("")
    data = load_images(tmp_path)
    assert len(data.train) + len(data.test) == len(kinds)
    (note,) = data.notes
    assert "4 files of other kinds" in note
    for words in ("2 .txt", "1 .heic", "1 Makefile"):
        assert words in note


def test_the_class_that_has_no_images_in_a_split_is_named(tmp_path):
    fill(tmp_path / "train", 0, "abc")
    fill(tmp_path / "test", 100, "ab")
    assert load_images(tmp_path).notes == ("No test images of: c.",)


def test_model_folders_in_an_image_folder_are_passed_over(tmp_path):
    fill(tmp_path, 0)
    run = tmp_path / "saved_models" / "run"
    write(run / "pictures" / "0.png", 77)
    (run / "run.json").write_text("{}")
    data = load_images(tmp_path)
    assert data.train.class_names == ("a", "b") and 77 not in values(data.train)
    assert data.notes == (f"Left out: {run} is a model folder.",)


def transparent(path, ink, mode="RGBA"):
    """Writes strokes of one colour on a transparent ground."""
    pixels = np.zeros((12, 12, 4), np.uint8)
    pixels[..., :3] = ink
    pixels[RANDOM.integers(0, 12, 40), RANDOM.integers(0, 12, 40), 3] = 255
    image = Image.fromarray(pixels)
    if mode == "P":
        image = image.quantize(8)
    image.save(path)


@pytest.mark.parametrize("mode", ["RGBA", "P"])
@pytest.mark.parametrize(("ink", "ground"), [(0, 255), (255, 0)])
def test_drawings_on_a_transparent_ground_stay_visible(tmp_path, ink, ground, mode):
    for i in range(4):
        transparent(tmp_path / f"{i}.png", ink, mode)
    data = load_images(tmp_path)
    for image in [*data.train.images, *data.test.images]:
        assert set(np.unique(image)) == {0, 255}
        assert (image == ground).mean() > 0.5
    assert len(data.notes) == (ground == 255)
    wrong = "black" if ground else "white"
    assert len(np.unique(load_images(tmp_path, background=wrong).train.images)) == 1
    with pytest.raises(DataError, match="`background` must be black or white"):
        load_images(tmp_path, background="grey")


def test_one_ground_for_training_and_test_images(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
    for i in range(6):
        transparent(tmp_path / "train" / f"{i}.png", 0)
        transparent(tmp_path / "test" / f"{i}.png", 255 if i else 0)
    assert load_images(tmp_path).test.images.max() == 255
    store = load_images(tmp_path, store=tmp_path / "store")
    assert np.array_equal(np.asarray(store.test.images), load_images(tmp_path).test.images)


def test_the_limit_decides_about_colour_in_memory_and_on_disk(tmp_path):
    for i in range(12):
        write(tmp_path / f"{i:02}.png")
    order = load_images(tmp_path, seed=3)
    last = order.train.images[-1]
    for path in tmp_path.iterdir():
        if np.array_equal(np.asarray(Image.open(path)), last[..., 0]):
            Image.fromarray(RANDOM.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(path)
            break
    for limit, channels in ((3, 1), (None, 3)):
        found = [
            load_images(tmp_path, seed=3, limit=limit, store=s) for s in (None, tmp_path / ".s")
        ]
        assert [data.image_shape[-1] for data in found] == [channels, channels]
        assert np.array_equal(found[0].train.images, np.asarray(found[1].train.images))


def test_former_rules_stay_for_former_runs(tmp_path):
    fill(tmp_path / "training", 0)
    fill(tmp_path / "testing", 100)
    assert load_images(tmp_path, data_version=1).train.class_names == ("testing", "training")
    with pytest.raises(DataError, match="`data_version` must be an integer from 1 to 3"):
        load_images(tmp_path, data_version=4)


def test_class_folders_that_are_not_utf8_have_names_that_can_be_written(tmp_path):
    fill(tmp_path, 0)
    try:
        (tmp_path / "a").rename(tmp_path / b"caf\xe9".decode("utf-8", "surrogateescape"))
    except OSError:
        pytest.skip("this file system has names of UTF-8 alone")
    names = load_images(tmp_path).train.class_names
    assert names == ("b", "caf\\xe9") and "".join(names).encode()


def test_images_that_show_nothing_are_refused():
    for images, words in [
        (np.full((4, 8, 8, 1), 7), "4 equal images"),
        (np.arange(2 * 64).reshape(2, 8, 8, 1) % 2, None),
        (RANDOM.integers(0, 2, (4, 8, 8, 1)), "from 0 to 1 only"),
    ]:
        with pytest.raises(DataError, match=words or "equal"):
            check_contrast(images.astype("uint8"))


def test_faint_images_get_a_line():
    images = RANDOM.integers(0, 20, (4, 8, 8, 1)).astype("uint8")
    assert check_contrast(images) == (
        "The images are nearly black: the largest value is 19 of 255.",
    )
    assert check_contrast(images * 10) == ()
    # Rows on disk, too.
    assert check_contrast(RowView(images * 10, np.array([3, 0, 2]))) == ()


def test_classes_are_counted_only_if_they_have_names():
    images = ImageSet(np.zeros((3, 8, 8, 1), np.uint8), np.array([0, 4, 1]))
    data = ImageData(images, images)
    assert data.class_counts() is None and data.classes == 5
    assert ImageData(*2 * [ImageSet(images.images)]).classes is None
