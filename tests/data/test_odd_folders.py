"""Folders that are not what they seem: files of systems, masks, pages, links, small classes.

Rejected: images that are left out, or read twice, without a line.
"""

import os
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data.listing import Listing
from keras_capsule_poe.data.trees import Folder

RANDOM = np.random.default_rng(0)


def picture():
    return Image.fromarray(RANDOM.integers(0, 256, (8, 8), dtype=np.uint8))


def write(path, pages=1, **options):
    """Writes a file of random grey pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    more = [picture() for _ in range(pages - 1)]
    picture().save(path, **({"save_all": True, "append_images": more} if more else {}), **options)
    return path


def fill(root, classes="ab", n=4):
    for name in classes:
        for i in range(n):
            write(root / name / f"{i}.png")
    return root


def total(data):
    return len(data.train) + len(data.test)


def wrapped(root):
    """An archive that macOS made."""
    fill(root / "photos")
    (root / "__MACOSX" / "photos").mkdir(parents=True)
    (root / "__MACOSX" / "photos" / "._0.png").write_bytes(b"no image")


def thumbnails(root):
    """A network drive of Synology."""
    fill(root)
    for name in ("a", "b"):
        for i in range(4):
            write(root / name / "@eaDir" / f"{i}.png" / "SYNOPHOTO_THUMB_M.png")
    write(root / "@eaDir" / "thumb.png")


def of_systems(root):
    fill(root)
    for name in ("$RECYCLE.BIN", "System Volume Information", "lost+found", "#recycle", ".Trashes"):
        write(root / name / "0.png")
    write(root / "a" / ".AppleDouble" / "0.png")
    write(root / "a" / "._0.png")
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "a/Thumbs.db"):
        (root / name).write_text("")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (wrapped, ["1 __MACOSX"]),
        (thumbnails, ["3 @eaDir"]),
        (of_systems, ["2 Thumbs.db", "4 more kinds"]),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_what_a_system_makes_is_not_read_and_counted(tmp_path, make, words, is_packed):
    root = tmp_path / "root"
    root.mkdir()
    make(root)
    if is_packed:
        root = shutil.make_archive(str(tmp_path / "packed"), "zip", root)
    data = load_images(root)
    assert data.train.class_names == ("a", "b") and total(data) == 8
    (note,) = [note for note in data.notes if "of a system" in note]
    for each in words:
        assert each in note


def test_former_runs_keep_the_images_of_such_folders(tmp_path):
    thumbnails(tmp_path)
    write(tmp_path / "a" / "pages.tif", pages=3)
    data = load_images(tmp_path, data_version=2)
    assert data.train.class_names == ("@eaDir", "a", "b") and total(data) == 18
    # The first part was the first in the folder.
    split = tmp_path / "split"
    for part in ("train", "test"):
        fill(split / part)
    for version, sizes in ((2, (8, 3)), (3, (3, 8))):
        data = load_images(split, limit=3, data_version=version)
        assert (len(data.train), len(data.test)) == sizes


@pytest.mark.parametrize(
    ("images", "masks"),
    [("images", "masks"), ("Imgs", "labels"), ("JPEGImages", "SegmentationClass"), ("x", "y")],
)
def test_a_set_for_segmentation_is_refused(tmp_path, images, masks):
    for i in range(4):
        write(tmp_path / images / f"{i}.jpg")
        write(tmp_path / masks / f"{i}{'_mask' if masks == 'masks' else ''}.png")
    with pytest.raises(DataError, match="set for segmentation") as caught:
        load_images(tmp_path)
    assert caught.value.hint == "train_dir"
    assert f"{images}/ and {masks}/" in str(caught.value)
    assert total(load_images(tmp_path, train_dir=tmp_path / images)) == 4
    # Who names the folder knows that they are classes.
    assert total(load_images(tmp_path, train_dir=tmp_path)) == 8


def test_classes_that_are_called_as_masks_are_classes(tmp_path):
    fill(tmp_path, ("mask", "no_mask"))
    assert load_images(tmp_path).train.class_names == ("mask", "no_mask")


def test_masks_inside_of_classes_are_left_out_and_named(tmp_path):
    for name in ("a", "b"):
        for i in range(4):
            write(tmp_path / "beside" / name / f"{i}.png")
            write(tmp_path / "beside" / name / f"{i}_mask.png")
            write(tmp_path / "below" / name / "images" / f"{i}.png")
            write(tmp_path / "below" / name / "masks" / f"{i}.png")
    for folder, words in (("beside", "8 masks of other images"), ("below", "a/masks, the masks")):
        data = load_images(tmp_path / folder)
        assert data.train.class_names == ("a", "b") and total(data) == 8
        assert any(words in note for note in data.notes)


@pytest.mark.parametrize(
    ("train", "test", "names"),
    [
        (("Cat", "hot dog"), ("cat", "Hot_Dog"), ("Cat", "hot dog")),
        (("caf\u00e9", "a"), ("cafe\u0301", "a"), ("a", "caf\u00e9")),
        # Letters are classes of their own.
        (("A", "a"), ("A", "a"), ("A", "a")),
    ],
)
def test_class_folders_that_are_spelled_in_two_ways_are_one_class(tmp_path, train, test, names):
    fill(tmp_path / "train", train)
    fill(tmp_path / "test", test)
    data = load_images(tmp_path)
    assert data.train.class_names == data.test.class_names == names
    assert sorted(data.train.labels) == sorted(data.test.labels) == [0] * 4 + [1] * 4
    assert len(data.notes) == (set(train) != set(test))


@pytest.mark.parametrize("ending", ["tif", "gif"])
def test_pages_are_images_that_stay_together(tmp_path, ending):
    for name in ("a", "b"):
        for i in range(6):
            write(tmp_path / name / f"{i}.{ending}", pages=3 if i else 1)
    data = load_images(tmp_path, seed=1)
    assert total(data) == 32 and data.image_shape == (8, 8, 1)
    assert sorted(data.train.labels.tolist() + data.test.labels.tolist()) == [0] * 16 + [1] * 16
    assert len(np.unique(data.train.images, axis=0)) == len(data.train)
    data = data.hold_out(3)
    sides = [set(part.extras["groups"]) for part in (data.train, data.held_out, data.test)]
    assert sum(map(len, sides)) == len(set().union(*sides)) == 12
    assert any("30 pages of 10 files" in note for note in data.notes)
    assert total(load_images(tmp_path, data_version=2)) == 12
    stored = load_images(tmp_path, seed=1, store=tmp_path / ".store")
    assert stored.fingerprints == load_images(tmp_path, seed=1).fingerprints


def test_a_file_of_pages_is_a_data_set(tmp_path):
    path = write(tmp_path / "stack.tif", pages=9)
    data = load_images(path)
    assert total(data) == 9
    assert any("pages of one file" in note for note in data.notes)


def test_smaller_copies_of_a_page_are_no_pages(tmp_path):
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    about = ImageFileDirectory_v2()
    about[254] = 1
    small = picture().resize((4, 4))
    small.encoderinfo = {"tiffinfo": about}
    for name in ("a.tif", "b.tif"):
        picture().save(tmp_path / name, save_all=True, append_images=[small])
    data = load_images(tmp_path)
    assert total(data) == 2 and data.image_shape == (8, 8, 1)
    assert any("several frames, of which the first is read" in note for note in data.notes)


@pytest.mark.parametrize("ending", ["png", "webp"])
def test_frames_of_other_animations_are_named(tmp_path, ending):
    fill(tmp_path)
    path = write(tmp_path / "a" / f"moving.{ending}", pages=4)
    data = load_images(tmp_path)
    assert total(data) == 9
    (note,) = data.notes
    assert str(path) in note and "several frames, of which the first is read" in note


def test_classes_of_few_images_are_named(tmp_path):
    fill(tmp_path)
    write(tmp_path / "single" / "0.png")
    (tmp_path / "empty").mkdir()
    data = load_images(tmp_path)
    assert data.train.class_names == ("a", "b", "single")
    assert data.notes == (
        f"Folders of {tmp_path} without images: empty.",
        "Classes of one image: single.",
    )


def test_training_images_are_no_test_images(tmp_path):
    fill(tmp_path / "train")
    (tmp_path / "test").symlink_to("train")
    with pytest.raises(DataError, match="must be in two folders. Received: .*test.*train"):
        load_images(tmp_path)
    folders = {"train_dir": tmp_path / "train", "test_dir": tmp_path / "train"}
    with pytest.raises(DataError, match="must be in two folders"):
        load_images(tmp_path, **folders)
    (tmp_path / "test").unlink()
    fill(tmp_path / "test")
    for link in (os.link, os.symlink):
        copy = tmp_path / "test" / "b" / f"{link.__name__}.png"
        link(tmp_path / "train" / "a" / "0.png", copy)
        with pytest.raises(DataError, match=f"in one split alone. Received: .*{copy}"):
            load_images(tmp_path)
        copy.unlink()
    with pytest.raises(DataError, match="in one split alone"):
        load_images(tmp_path, train_dir=tmp_path, test_dir=tmp_path / "test")
    for i in range(2):
        copy = tmp_path / "test" / "b" / f"copy {i}.png"
        copy.write_bytes((tmp_path / "train" / "a" / "0.png").read_bytes())
    assert load_images(tmp_path).notes == (
        "2 test images are training images, too, pixel by pixel.",
    )


def test_a_link_to_nothing_in_a_split_is_reported(tmp_path):
    for part in ("train", "test"):
        fill(tmp_path / part)
        (tmp_path / part / "a" / "gone.png").symlink_to("nowhere.png")
    with pytest.raises(DataError, match="gone.png cannot be read: No such file"):
        load_images(tmp_path)
    assert total(load_images(tmp_path, skip_broken=True)) == 16


def test_what_lies_beside_the_splits_is_named(tmp_path):
    for part in ("train", "test"):
        fill(tmp_path / part)
    write(tmp_path / "sample.png")
    (tmp_path / "notes.txt").write_text("")
    notes = load_images(tmp_path).notes
    assert any("1 image beside the splits" in note for note in notes)
    assert any("1 .txt" in note for note in notes)


def test_files_that_are_skipped_are_named(tmp_path):
    fill(tmp_path)
    (tmp_path / "a" / "bad.png").write_bytes(b"no image")
    (tmp_path / "b" / "zero.png").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "b" / "fifo.png")
    data = load_images(tmp_path, skip_broken=True)
    assert total(data) == 8
    (note,) = data.notes
    for name in ("bad.png", "zero.png", "fifo.png"):
        assert name in note


@pytest.mark.parametrize("kind", ["fifo", "device", "zip", "damaged", "encrypted"])
def test_what_is_no_folder_is_refused(tmp_path, kind):
    path = tmp_path / "data.zip"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "zip":
        path.write_bytes(b"no archive")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("a.png", "b.png"):
                archive.write(write(tmp_path / name), name)
        content = bytearray(path.read_bytes())
        if kind == "damaged":
            content[60] ^= 1
        else:
            # The bit of encryption in the local header and in the directory.
            for start in (b"PK\x03\x04", b"PK\x01\x02"):
                place = content.find(start)
                while place >= 0:
                    content[place + (6 if start[2] == 3 else 8)] |= 1
                    place = content.find(start, place + 1)
        path.write_bytes(content)
    words = {
        "fifo": "must be a folder or a regular file",
        "device": "must be a folder or a regular file",
        "zip": "cannot be read as a .zip file",
        "damaged": "cannot be read: Bad CRC-32",
        "encrypted": "cannot be read: .*encrypted",
    }[kind]
    with pytest.raises(DataError, match=words) as caught:
        load_images(path)
    assert "\n" not in str(caught.value)


def test_a_zip_of_a_folder_is_that_folder(tmp_path):
    root = tmp_path / "root"
    for part in ("train", "test"):
        fill(root / part)
    write(root / "train" / "a" / "pages.gif", pages=3)
    path = shutil.make_archive(str(tmp_path / "packed"), "zip", root)
    wanted, found = load_images(root, seed=2), load_images(path, seed=2)
    assert found.fingerprints == wanted.fingerprints
    assert found.test.class_names == wanted.test.class_names
    stored = load_images(path, seed=2, store=tmp_path / "stores")
    assert stored.fingerprints == wanted.fingerprints
    with pytest.raises(DataError, match="`train_dir` has no meaning for a .zip file"):
        load_images(path, train_dir=root)


def test_a_zip_cannot_name_files_outside(tmp_path):
    path = tmp_path / "odd.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i, name in enumerate(("../a/0.png", "/etc/a/1.png", "./b//2.png")):
            archive.write(write(tmp_path / f"{i}.png"), name)
    assert len(Listing(Folder(3), str(tmp_path))) == 3
    data = load_images(path)
    assert total(data) == 3 and data.train.class_names == ("a", "b", "etc")
