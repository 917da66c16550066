"""Folders of image files: classes, formats, damaged files and links."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data.image_files import Decoded

RANDOM = np.random.default_rng(0)


def write(path, array=None, **keywords):
    """Writes an image file, by default one of random grey pixels."""
    if array is None:
        array = RANDOM.integers(0, 256, (24, 20), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image.save(path, **keywords)
    return path


@pytest.fixture
def classes(tmp_path):
    """Nine images in three classes; the value of all pixels of an image is its number."""
    for number in range(9):
        write(tmp_path / "abc"[number // 3] / f"{number}.png", np.full((20, 20), number, np.uint8))
    return tmp_path


def numbers(images):
    return images.images[:, 0, 0, 0].tolist()


def test_sub_folders_are_classes(classes):
    data = load_images(str(classes), test_fraction=0.3)
    assert data.train.class_names == data.test.class_names == ("a", "b", "c")
    assert (len(data.train), len(data.test)) == (6, 3)
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(9))
    for part in (data.train, data.test):
        assert part.labels.tolist() == [number // 3 for number in numbers(part)]


def test_what_is_held_out_depends_on_the_seed_only(classes):
    tests = numbers(load_images(classes, seed=4, test_fraction=0.3).test)
    assert numbers(load_images(classes, seed=4, test_fraction=0.3, limit=1).test) == tests
    others = [numbers(load_images(classes, seed=seed, test_fraction=0.3).test) for seed in (5, 6)]
    assert any(sorted(other) != sorted(tests) for other in others)


def test_limit_takes_the_first_of_the_random_order(classes):
    whole = numbers(load_images(classes).train)
    assert numbers(load_images(classes, limit=4).train) == whole[:4]
    assert whole != sorted(whole)
    assert len(load_images(classes, limit=100).train) == len(whole)


def test_an_image_outside_the_sub_folders_means_no_classes(classes):
    write(classes / "9.png", np.full((20, 20), 9, np.uint8))
    train = load_images(classes).train
    assert train.labels is None
    assert train.class_names is None


@pytest.mark.parametrize("test", ["test", "validation", "val"])
def test_a_train_and_test_pair_is_the_split(tmp_path, test):
    for number, place in enumerate(["train/a", "train/b", "train/b/deep", f"{test}/b", "rest/c"]):
        write(tmp_path / place / f"{number}.png", np.full((20, 20), number, np.uint8))
    data = load_images(tmp_path)
    assert sorted(numbers(data.train)) == [0, 1, 2]
    assert numbers(data.test) == [3]
    assert data.test.class_names == ("a", "b")
    assert data.test.labels.tolist() == [1]


@pytest.mark.parametrize("extension", ["png", "jpg", "JPEG", "gif", "bmp", "webp", "tif", "tiff"])
def test_formats(tmp_path, extension):
    smooth = np.add.outer(np.arange(24), np.arange(20)).astype(np.uint8) * 5
    for name in "ab":
        write(tmp_path / f"{name}.{extension}", smooth)
    images = load_images(tmp_path, grey=True).train.images
    assert images.shape == (1, 24, 20, 1)
    assert np.abs(images[0, ..., 0].astype(int) - smooth).max() <= 6


def test_other_and_hidden_files_are_left_out(classes):
    (classes / "a" / "notes.txt").write_text("no image")
    (classes / "a" / "._0.png").write_bytes(b"no image")
    write(classes / ".cache" / "x.png", np.zeros((20, 20), np.uint8))
    data = load_images(classes)
    assert len(data.train) + len(data.test) == 9
    assert data.train.class_names == ("a", "b", "c")


def one_pixel_type(tmp_path, image, name="b.png", **keywords):
    """The first image of a folder that holds it twice."""
    for copy in (name, f"copy_{name}"):
        write(tmp_path / copy, image, **keywords)
    return load_images(tmp_path).train.images[0]


def test_grey_only_if_all_are_grey(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.png", np.full((20, 20), 7, np.uint8))
    assert load_images(tmp_path).image_shape == (20, 20, 1)
    write(tmp_path / "c.png", np.full((20, 20, 3), (9, 8, 7), np.uint8))
    data = load_images(tmp_path)
    pixels = {tuple(image[0, 0]) for image in [*data.train.images, *data.test.images]}
    assert pixels == {(7, 7, 7), (9, 8, 7)}
    assert load_images(tmp_path, grey=True).image_shape == (20, 20, 1)


def test_transparent_pixels_are_blended_with_black(tmp_path):
    pixels = np.zeros((20, 20, 4), np.uint8)
    pixels[:, :10] = (200, 100, 50, 255)
    pixels[:, 10:] = (200, 100, 50, 0)
    pixels[0, 0] = (200, 100, 50, 51)
    for name in ("a.png", "b.png"):
        write(tmp_path / name, pixels)
    image = load_images(tmp_path, background="black").train.images[0]
    assert image[5, 5].tolist() == [200, 100, 50]
    assert image[5, 15].tolist() == [0, 0, 0]
    assert image[0, 0].tolist() == [40, 20, 10]


def test_transparent_grey_stays_grey(tmp_path):
    pixels = np.full((20, 20, 2), (100, 128), np.uint8)
    image = one_pixel_type(tmp_path, Image.fromarray(pixels, "LA"))
    assert image.shape == (20, 20, 1)
    assert np.all(image == 50)


@pytest.mark.parametrize("extension", ["png", "tif"])
def test_16_bits_keep_their_scale(tmp_path, extension):
    deep = np.linspace(0, 65535, 400).astype(np.uint16).reshape(20, 20)
    image = one_pixel_type(tmp_path, deep, f"b.{extension}")
    assert np.array_equal(image[..., 0], np.rint(deep / 257).astype(np.uint8))


def test_float_pixels(tmp_path):
    units = np.linspace(0, 1, 400, dtype=np.float32).reshape(20, 20)
    image = one_pixel_type(tmp_path, units, "b.tif")
    assert np.array_equal(image[..., 0], np.rint(units * 255).astype(np.uint8))


@pytest.mark.parametrize("scale", [np.float32(70000), np.float32(-1), np.int32(70000)])
def test_pixels_of_unknown_range_are_refused(tmp_path, scale):
    deep = np.full((20, 20), 1, scale.dtype) * scale
    with pytest.raises(DataError, match="b.tif must hold .* Received: values from"):
        one_pixel_type(tmp_path, deep, "b.tif")


@pytest.mark.parametrize(("colour", "channels"), [((9, 9, 9), 1), ((9, 8, 7), 3)])
def test_palettes(tmp_path, colour, channels):
    image = Image.new("P", (20, 20), 1)
    image.putpalette([0, 0, 0, *colour])
    assert one_pixel_type(tmp_path, image)[0, 0].tolist() == list(colour)[:channels]


def test_black_and_white_images_use_the_full_range(tmp_path):
    image = one_pixel_type(tmp_path, Image.new("1", (20, 20), 1))
    assert image.shape == (20, 20, 1)
    assert np.all(image == 255)


def test_images_are_turned_upright(tmp_path):
    pixels = np.arange(24 * 20, dtype=np.uint8).reshape(24, 20)
    exif = Image.Exif()
    exif[0x0112] = 6
    image = one_pixel_type(tmp_path, pixels, exif=exif)
    assert np.array_equal(image[..., 0], np.rot90(pixels, -1))


def test_sizes_that_differ_are_refused_unless_resized(tmp_path):
    one = write(tmp_path / "one.png")
    two = write(tmp_path / "two.png", np.zeros((30, 20), np.uint8))
    with pytest.raises(DataError, match="must have the same size") as caught:
        load_images(tmp_path)
    assert caught.value.hint == "image_size"
    for part in (one, two, "24x20", "30x20"):
        assert str(part) in str(caught.value)
    assert load_images(tmp_path, image_size=25).image_shape == (25, 25, 1)
    assert load_images(tmp_path, image_size=[21, 32]).image_shape == (21, 32, 1)


def test_resizing_keeps_the_mean(tmp_path):
    ramp = np.add.outer(np.arange(60), np.arange(60)).astype(np.uint8) * 2
    write(tmp_path / "a.png", ramp)
    write(tmp_path / "b.png", ramp)
    small = load_images(tmp_path, image_size=20).train.images
    assert abs(small.mean() - ramp.mean()) < 1
    assert np.all(np.diff(small[0, :, 5, 0].astype(int)) > 0)


def test_small_images_are_refused(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.png", np.zeros((8, 30), np.uint8))
    with pytest.raises(DataError, match="at least 20x20 pixels.* Received: 8x30"):
        load_images(tmp_path, smallest=20)
    assert load_images(tmp_path, smallest=20, image_size=20).image_shape == (20, 20, 1)
    assert load_images(tmp_path).image_shape == (8, 30, 1)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path} holds no images"):
        load_images(tmp_path)


def test_a_single_image_is_refused(tmp_path):
    write(tmp_path / "a.png")
    with pytest.raises(DataError, match="at least 2 images.* Received: 1"):
        load_images(tmp_path)


@pytest.mark.parametrize("kind", ["truncated", "text", "empty"])
def test_a_broken_file_is_refused_or_skipped(classes, kind):
    broken = classes / "b" / "bad.png"
    noise = RANDOM.integers(0, 256, (20, 20), dtype=np.uint8)
    whole = write(broken, noise).read_bytes()
    broken.write_bytes(
        {"truncated": whole[: len(whole) // 2], "text": b"no image", "empty": b""}[kind]
    )
    with pytest.raises(DataError, match=f"{broken} is broken or no image") as caught:
        load_images(classes)
    assert caught.value.hint == "skip_broken"
    data = load_images(classes, skip_broken=True)
    assert data.skipped == (str(broken),)
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(9))


def test_more_images_than_memory_holds_are_refused_at_the_first(classes, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.data.pixels._memory", lambda: 10**8)
    read = []
    reader = "keras_capsule_poe.data.preparation.decode"
    image = Decoded(Image.new("L", (20, 20)))
    monkeypatch.setattr(reader, lambda path, *_: read.append(path) or image)
    with pytest.raises(
        DataError, match="images of 8000x8000x1 would take .* GB of memory"
    ) as found:
        load_images(classes, image_size=8000)
    assert found.value.hint == ("image_size", "store") and len(read) == 1


def test_a_fifo_is_not_waited_for(classes):
    os.mkfifo(classes / "b" / "pipe.png")
    with pytest.raises(DataError, match="pipe.png is no file") as caught:
        load_images(classes)
    assert caught.value.hint == "skip_broken"


def test_a_file_that_may_not_be_read_is_not_called_broken(classes):
    missing = classes / "b" / "gone.png"
    missing.symlink_to("nowhere.png")
    with pytest.raises(DataError, match=f"{missing} cannot be read: No such file") as caught:
        load_images(classes)
    assert caught.value.hint == "skip_broken"
    assert load_images(classes, skip_broken=True).skipped == (str(missing),)


def test_images_far_too_large_are_one_error_and_large_ones_no_warning(classes, monkeypatch):
    large = write(classes / "b" / "large.png", np.full((30, 20), 9, np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    assert len(load_images(classes, image_size=20, test_fraction=0.1).train) == 7
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 299)
    with pytest.raises(DataError, match=f"{large} is too large, .* more than 598 pixels") as caught:
        load_images(classes, image_size=20)
    assert caught.value.hint == "skip_broken"
    assert load_images(classes, skip_broken=True).skipped == (str(large),)


def test_classes_that_are_links_are_followed(classes, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (classes / "b").rename(elsewhere / "b")
    (classes / "b").symlink_to(elsewhere / "b")
    data = load_images(classes)
    assert data.train.class_names == ("a", "b", "c")
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(9))


def test_a_folder_is_read_once_however_many_links_lead_to_it(classes, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere / "9.png", np.full((20, 20), 9, np.uint8))
    write(elsewhere / "10.png", np.full((20, 20), 10, np.uint8))
    for name, target in {"d": "a", "e": elsewhere, "f": elsewhere}.items():
        (classes / name).symlink_to(target)
    (classes / "a" / "again.png").symlink_to(classes / "b" / "3.png")
    data = load_images(classes)
    assert data.train.class_names == ("a", "b", "c", "e")
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(11))
    assert sum("links to" in note for note in data.notes) == 3


def test_folders_that_link_to_each_other_are_walked_once(tmp_path_factory):
    roots = [tmp_path_factory.mktemp(f"part{i}") for i in range(11)]
    for i, root in enumerate(roots):
        write(root / f"{i}.png", np.full((20, 20), i, np.uint8))
        for j, other in enumerate(roots):
            (root / f"link{j}").symlink_to(other)
    data = load_images(roots[0])
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(11))


def test_a_link_to_itself_does_not_matter(classes):
    (classes / "loop").symlink_to("loop")
    assert len(load_images(classes).train) == 6


def test_git_annex_keeps_files_in_a_hidden_folder(classes):
    store = classes / ".git" / "annex"
    store.mkdir(parents=True)
    for path in sorted((classes / "a").iterdir()):
        path.rename(store / path.name)
        path.symlink_to(store / path.name)
    data = load_images(classes)
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(9))


def test_links_that_lead_back_up_are_no_loop(classes):
    (classes / "a" / "up").symlink_to(classes)
    (classes / "b" / "here").symlink_to(".")
    data = load_images(classes)
    # Only what the walk is inside of is left out.
    assert sorted(numbers(data.train) + numbers(data.test)) == list(range(9))


def test_a_folder_that_may_not_be_read_is_refused(classes, monkeypatch):
    scandir = os.scandir

    def forbidden(path):
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(DataError, match=f"{classes / 'b'} cannot be read: Permission denied"):
        load_images(classes, skip_broken=True)


def test_limit_does_not_count_broken_files(classes):
    order = load_images(classes).train
    first = numbers(order)[0]
    (classes / "abc"[first // 3] / f"{first}.png").write_bytes(b"no image")
    data = load_images(classes, skip_broken=True, limit=3)
    assert numbers(data.train) == numbers(order)[1:4]


def test_nothing_but_broken_files_is_refused(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="no image is left"):
        load_images(tmp_path, skip_broken=True)


def test_a_column_has_no_meaning_here(classes):
    with pytest.raises(DataError, match="`column` has no meaning for a folder.*'image'"):
        load_images(classes, column="image")
