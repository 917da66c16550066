"""Images of every source in a store: the same as in memory."""

import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, batches, load_images
from keras_capsule_poe.data.mapping import RowView

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (7, 6, 5, 1), dtype=np.uint8)


@pytest.fixture
def png_folder(tmp_path):
    """Twelve images in two classes, grey but for the ninth, and one that is broken."""
    root = tmp_path / "pictures"
    for number in range(12):
        pixels = RANDOM.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        image = Image.fromarray(pixels if number == 8 else pixels[..., 0])
        path = root / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    (root / "a" / "05.png").write_bytes(b"no image")
    return root


@pytest.fixture
def split_folder(png_folder):
    for part in ("train", "test"):
        (png_folder / part).mkdir()
    for name in "ab":
        for path in sorted((png_folder / name).iterdir()):
            part = "test" if path.stem in ("00", "01", "07") else "train"
            target = png_folder / part / name / path.name
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
    return png_folder


@pytest.fixture
def archive(tmp_path):
    def write(save=np.savez_compressed, **arrays):
        save(tmp_path / "some.npz", **arrays)
        return tmp_path / "some.npz"

    return write


def equal(dataset, directory, **options):
    """Loads from a store and in memory: every array, label and fingerprint is the same."""
    wanted = load_images(dataset, **options)
    for _ in range(2):
        found = load_images(dataset, store=directory, **options)
        assert isinstance(found.train.images, (np.memmap, RowView)), "it is in memory"
        assert found.train.nbytes == 0
        assert found.skipped == tuple(sorted(found.skipped))
        for part in ("train", "test"):
            ours, theirs = getattr(found, part), getattr(wanted, part)
            assert np.asarray(ours.images).tobytes() == theirs.images.tobytes()
            assert ours.images.shape == theirs.images.shape
            assert (ours.labels is None) == (theirs.labels is None)
            assert np.array_equal(ours.labels, theirs.labels)
            assert (ours.class_names, ours.name) == (theirs.class_names, theirs.name)
            assert ours.fingerprint == theirs.fingerprint
            assert ours.label_fingerprint == theirs.label_fingerprint
            assert set(ours.extras) == set(theirs.extras)
        ours, theirs = (data.hold_out(2) for data in (found, wanted))
        assert isinstance(ours.held_out.images, (np.memmap, RowView))
        assert ours.fingerprints == theirs.fingerprints
    return found, wanted


@pytest.mark.parametrize(
    "options",
    [{}, {"seed": 3, "limit": 5}, {"grey": True}, {"image_size": 21, "test_fraction": 0.5}],
)
def test_a_folder(png_folder, tmp_path, options):
    found, wanted = equal(png_folder, tmp_path / "stores", skip_broken=True, **options)
    assert set(wanted.skipped) <= set(found.skipped) == {str(png_folder / "a" / "05.png")}
    # Another order and another limit are of the same store.
    load_images(
        png_folder, store=tmp_path / "stores", **{"skip_broken": True, **options, "seed": 9}
    )
    assert len(list((tmp_path / "stores").iterdir())) == 1


def test_a_folder_of_training_and_test_images(split_folder, tmp_path):
    found, _ = equal(split_folder, tmp_path / "stores", skip_broken=True)
    assert (len(found.train), len(found.test)) == (9, 3)


def test_a_broken_file_stops_it_and_mending_it_goes_on_anew(png_folder, tmp_path):
    with pytest.raises(DataError, match="05.png is broken") as caught:
        load_images(png_folder, store=tmp_path / "stores")
    assert caught.value.hint == "skip_broken"
    (png_folder / "a" / "05.png").unlink()
    equal(png_folder, tmp_path / "stores")


def test_a_folder_of_broken_files_is_refused(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"no image")
    with pytest.raises(DataError, match="no image is left"):
        load_images(tmp_path, store=tmp_path / "stores", skip_broken=True)


def test_changed_files_are_another_store(png_folder, tmp_path):
    load_images(png_folder, store=tmp_path / "stores", skip_broken=True)
    path = png_folder / "b" / "01.png"
    before = path.stat()
    Image.fromarray(np.full((20, 24), 7, np.uint8)).save(path)
    found, _ = equal(png_folder, tmp_path / "stores", skip_broken=True)
    assert (np.asarray(found.train.images) == 7).all(axis=(1, 2, 3)).sum() + (
        np.asarray(found.test.images) == 7
    ).all(axis=(1, 2, 3)).sum() == 1
    # Of the same size, and a moment later.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    load_images(png_folder, store=tmp_path / "stores", skip_broken=True)
    assert len(list((tmp_path / "stores").iterdir())) == 3


def test_an_archive(archive, tmp_path, monkeypatch):
    for save in [np.savez, np.savez_compressed]:
        for kind in ["bytes", "floats", "rgb", "columns"]:
            monkeypatch.setattr("keras_capsule_poe.data.archives._BYTES", 2000)
            images = RANDOM.integers(0, 256, (30, 20, 22, 3), dtype=np.uint8)
            images = images if kind == "rgb" else images[..., 0]
            if kind == "floats":
                images = (images / 255).astype("float32")
            if kind == "columns":
                images = np.asfortranarray(images)
            path = archive(save, images=images, labels=np.arange(30))
            equal(path, tmp_path / "stores")
            equal(path, tmp_path / "stores", limit=4, grey=kind == "rgb", image_size=20)


def test_an_archive_of_training_and_test_arrays(archive, tmp_path):
    images = RANDOM.integers(0, 256, (30, 20, 22), dtype=np.uint8)
    path = archive(x_train=images[:20], y_train=np.arange(20), x_test=images[20:])
    found, _ = equal(path, tmp_path / "stores", limit=12)
    assert (len(found.train), len(found.test)) == (12, 10)


def test_archives_that_are_no_images_are_refused(archive, tmp_path):
    for arrays, message in [
        ({"images": IMAGES[..., 0].astype(np.int32)}, "must be uint8 in"),
        ({"images": IMAGES.astype(np.float32) - 3}, r"floats in \[0, 1\]"),
        ({"images": IMAGES[:0]}, "is empty"),
        ({"images": np.array([{}], object)}, "damaged or of another kind"),
        ({"x_train": IMAGES, "x_test": IMAGES[:, :, :4]}, "same size.* Received: 6x5x1 and 6x4x1"),
        ({"a": IMAGES, "b": IMAGES}, "`column` must name"),
    ]:
        with pytest.raises(DataError, match=message) as caught:
            load_images(archive(**arrays), store=tmp_path / "stores")
        assert "\n" not in str(caught.value)


def test_a_damaged_archive_is_refused(archive, tmp_path):
    path = archive(np.savez, images=RANDOM.integers(0, 256, (30, 20, 22), dtype=np.uint8))
    with zipfile.ZipFile(path) as whole:
        offset = whole.getinfo("images.npy").header_offset
    content = bytearray(path.read_bytes())
    content[offset + 5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged or of another kind .*CRC"):
        load_images(path, store=tmp_path / "stores")


def test_what_is_generated_has_no_store(tmp_path):
    for dataset in ["digits", "viewpoints"]:
        with pytest.raises(DataError, match="`store` has no meaning") as caught:
            load_images(dataset, store=tmp_path / "stores")
        assert caught.value.hint == "leave_out:store"


def test_batches_are_those_of_images_in_memory(archive, tmp_path):
    for seed in [0, 5]:
        for where in [{}, {"first_epoch": 1, "first_step": 1}, {"shuffle": False}]:
            path = archive(images=RANDOM.integers(0, 256, (30, 20, 22), dtype=np.uint8))
            found, wanted = equal(path, tmp_path / "stores")
            order = {"batch_size": 4, "seed": seed, "epochs": 3, **where}
            ours, theirs = (
                list(batches(data.train.images, **order).as_numpy_iterator())
                for data in (found, wanted)
            )
            assert len(ours) == len(theirs) > 1
            assert all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs))


# What happens while it is written.
