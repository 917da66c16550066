"""Images as rows on disk: the same as in memory, whatever happens while they are written."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, batches, load_images, store
from keras_capsule_poe.data.rows import RowView
from keras_capsule_poe.data.store import Source, open_store
from keras_capsule_poe.errors import RunFailed

RANDOM = np.random.default_rng(0)
ROWS = 7
IMAGES = RANDOM.integers(0, 256, (ROWS, 6, 5, 1), dtype=np.uint8)


def one_by_one(seen=None, fail_at=None, error=KeyboardInterrupt):
    """Reads `IMAGES` one a block; `seen` gets the row that each reading begins with."""

    def read(first):
        if seen is not None:
            seen.append(first)
        for row in range(first, ROWS):
            if row == fail_at:
                raise error("stop")
            yield IMAGES[row : row + 1], {"labels": np.array([row])}

    return read


def source(read, **about):
    return Source("some/images", about, ROWS, read)


def check(found):
    images, known = found
    assert isinstance(images, np.memmap) and np.array_equal(images, IMAGES)
    assert known["labels"].tolist() == list(range(ROWS))


def folder_of(directory):
    (folder,) = directory.iterdir()
    return folder


# What a source writes.


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
    assert caught.value.mend == "skip_broken"
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


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", ["bytes", "floats", "rgb", "columns"])
def test_an_archive(archive, tmp_path, save, kind, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.data.sources.npz_rows._BYTES", 2000)
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


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES[..., 0].astype(np.int32)}, "must be uint8, or float"),
        ({"images": IMAGES.astype(np.float32) - 3}, r"floats in \[0, 1\]"),
        ({"images": IMAGES[:0]}, "is empty"),
        ({"images": np.array([{}], object)}, "damaged or of another kind"),
        ({"x_train": IMAGES, "x_test": IMAGES[:, :, :4]}, "same size.* Received: 6x5x1 and 6x4x1"),
        ({"a": IMAGES, "b": IMAGES}, "`column` must name"),
    ],
)
def test_archives_that_are_no_images_are_refused(archive, tmp_path, arrays, message):
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


@pytest.mark.parametrize("dataset", ["digits", "viewpoints"])
def test_what_is_generated_has_no_store(dataset, tmp_path):
    with pytest.raises(DataError, match="`store` has no meaning") as caught:
        load_images(dataset, store=tmp_path / "stores")
    assert caught.value.mend == "leave_out:store"


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("where", [{}, {"first_epoch": 1, "first_step": 1}, {"shuffle": False}])
def test_batches_are_those_of_images_in_memory(archive, tmp_path, seed, where):
    path = archive(images=RANDOM.integers(0, 256, (30, 20, 22), dtype=np.uint8))
    found, wanted = equal(path, tmp_path / "stores")
    order = {"batch_size": 4, "seed": seed, "epochs": 3, **where}
    ours, theirs = (
        list(batches(data.train.images, **order).as_numpy_iterator()) for data in (found, wanted)
    )
    assert len(ours) == len(theirs) > 1
    assert all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs))


# What happens while it is written.


@pytest.mark.parametrize("fail_at", range(ROWS))
@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError, OSError])
def test_interrupted_writing_goes_on_where_it_stopped(tmp_path, fail_at, error):
    with pytest.raises((error, RunFailed)):
        open_store(source(one_by_one(fail_at=fail_at, error=error)), tmp_path)
    # Row after row, and none twice.
    seen, lines = [], []
    check(open_store(source(one_by_one(seen)), tmp_path, lines.append))
    assert seen == [fail_at]
    assert lines == (
        [f"{folder_of(tmp_path)}: goes on after {fail_at} of 7 images"] * (fail_at > 0)
    )
    check(open_store(source(one_by_one(seen)), tmp_path))
    assert seen == [fail_at], "it was written again"
    assert sorted(path.name for path in folder_of(tmp_path).iterdir()) == [
        ".lock", ".store.json", "images.npy", "labels.npy", "store.json"
    ]  # fmt: skip


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    from keras_capsule_poe.data import store
    store.SECONDS = 0.0

    def read(first):
        for row in range(first, 7):
            if row == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            yield np.zeros((1, 6, 5, 1), np.uint8), {"labels": np.array([row])}

    store.open_store(store.Source("some/images", {}, 7, read), sys.argv[1])
    """
)


def test_a_killed_process_leaves_rows_that_count(tmp_path):
    """Rows of zeros are the killed process's, which nothing writes again."""
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path, "4"])
    assert done.returncode == -signal.SIGKILL
    seen = []
    images, known = open_store(source(one_by_one(seen)), tmp_path)
    assert seen == [4]
    assert not images[:4].any() and np.array_equal(images[4:], IMAGES[4:])
    assert known["labels"].tolist() == list(range(ROWS))


@pytest.mark.parametrize("damage", ["shorter", "gone", "progress"])
def test_what_was_begun_and_is_damaged_is_begun_anew(tmp_path, damage):
    with pytest.raises(KeyboardInterrupt):
        open_store(source(one_by_one(fail_at=5)), tmp_path)
    folder = folder_of(tmp_path)
    if damage == "shorter":
        os.truncate(folder / "labels.npy", 140)
    elif damage == "gone":
        (folder / "images.npy").unlink()
    else:
        (folder / "progress.json").write_text('{"rows": 6, "columns": ["images"], "digest": "0"}')
    check(open_store(source(one_by_one()), tmp_path))


def test_grey_rows_turn_rgb_with_the_first_rgb_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.data.growing._BLOCK", 2)
    colour = RANDOM.integers(0, 256, (2, 6, 5, 3), dtype=np.uint8)

    def read(first):
        blocks = [IMAGES[:3], colour, IMAGES[5:]]
        for start, block in zip((0, 3, 5), blocks):
            if start >= first:
                yield block, {}

    images, _ = open_store(source(read), tmp_path)
    wanted = np.concatenate([np.repeat(IMAGES[:3], 3, -1), colour, np.repeat(IMAGES[5:], 3, -1)])
    assert np.array_equal(images, wanted)


def test_images_of_two_sizes_are_refused(tmp_path):
    def read(first):
        yield IMAGES[:3], {}
        yield np.zeros((4, 6, 6, 1), np.uint8), {}

    with pytest.raises(DataError, match="same size.* Received: 6x5x1 and 6x6x1") as caught:
        open_store(source(read), tmp_path)
    assert caught.value.mend == "image_size"


def test_a_source_of_fewer_rows_is_refused(tmp_path):
    def read(first):
        yield IMAGES[:3], {}

    with pytest.raises(DataError, match="changed while it was read.* 7 images. Received: 3"):
        open_store(source(read), tmp_path)


def test_a_full_disk_is_a_line_and_then_it_goes_on(tmp_path):
    """A file may hold the header and three of the images."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    large = RANDOM.integers(0, 256, (ROWS, 16, 16, 1), dtype=np.uint8)

    def read(first):
        for row in range(first, ROWS):
            yield large[row : row + 1], {}

    try:
        with pytest.raises(RunFailed, match="Cannot write .*: File too large. 3 of 7") as caught:
            open_store(source(read), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.mend == "store_dir"
    lines = []
    images, _ = open_store(source(read), tmp_path, lines.append)
    assert np.array_equal(images, large)
    assert "goes on after 3 of 7" in lines[0]


WRITER = textwrap.dedent(
    """
    import sys, time
    import numpy as np
    from keras_capsule_poe.data.store import Source, open_store

    def read(first):
        print("writes", flush=True)
        for row in range(first, 7):
            time.sleep(0.1)
            yield np.full((1, 6, 5, 1), row, np.uint8), {"labels": np.array([row])}

    images, known = open_store(Source("some/images", {}, 7, read), sys.argv[1], print)
    print("sum", int(images.sum()) + int(known["labels"].sum()))
    """
)


def test_two_processes_write_one_store_once(tmp_path):
    command = [sys.executable, "-c", WRITER, tmp_path]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    first, second = sorted(outputs, key=len, reverse=True)
    assert [process.returncode for process in processes] == [0, 0]
    assert first[-1] == second[-1] == "sum 651"
    assert sum(lines.count("writes") for lines in outputs) == 1
    assert sum("waiting for it" in "".join(lines) for lines in outputs) == 1


# What happens to it afterwards.


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "store.json"])
@pytest.mark.parametrize("how", ["cut", "emptied", "flipped", "gone"])
def test_a_damaged_store_is_written_again(tmp_path, name, how):
    open_store(source(one_by_one()), tmp_path)
    path = folder_of(tmp_path) / name
    whole = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
        path.write_bytes({"cut": whole[:-9], "emptied": b"", "flipped": flipped}[how])
    seen, lines = [], []
    check(open_store(source(one_by_one(seen)), tmp_path, lines.append))
    if name == "store.json":
        # Its copy stands in for it.
        assert not seen
    else:
        assert seen == [0]
        assert lines == [f"{folder_of(tmp_path)} is damaged: it is written again."]
    check(open_store(source(one_by_one(seen)), tmp_path))


def test_other_settings_are_another_store(tmp_path):
    for size in (None, [6, 5]):
        check(open_store(source(one_by_one(), image_size=size), tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_place_that_cannot_be_written_is_a_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailed, match="Cannot write in the folder") as caught:
        open_store(source(one_by_one()), tmp_path / "file")
    assert caught.value.mend == "store_dir"


def test_reading_takes_no_memory_that_grows_with_the_store(tmp_path):
    """52 MB on disk; nothing of it is copied but the batches, of 0.1 MB each, and the order."""
    rows = 2**16
    block = np.zeros((4096, 28, 28, 1), np.uint8)

    def read(first):
        for _ in range(first, rows, len(block)):
            yield block, {"labels": np.zeros(len(block), np.int64)}

    tracemalloc.start()
    try:
        images, known = open_store(Source("large", {}, rows, read), tmp_path)
        from keras_capsule_poe.data import ImageData, ImageSet

        whole = ImageSet(images, known["labels"])
        shuffled = whole.take(np.random.default_rng(0).permutation(rows))
        data = ImageData(shuffled, whole.head(10)).hold_out()
        assert data.fingerprints and len(data.train) + len(data.held_out) == rows
        for start in range(0, len(data.train), 4096):
            data.train.images[np.arange(start, min(start + 128, len(data.train)))]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A block as it is written and as it is hashed, 3.2 MB each; labels and order, 8 bytes an image.
    assert peak < 12e6, f"{peak / 1e6:.0f} MB"


def test_views_of_rows_are_rows(tmp_path):
    images, _ = open_store(source(one_by_one()), tmp_path)
    view = RowView(images, np.array([4, 2, 6, 0]))
    assert (view.shape, view.dtype, len(view)) == ((4, 6, 5, 1), np.uint8, 4)
    assert np.array_equal(view[1:3], IMAGES[[2, 6]]) and isinstance(view[1:3], RowView)
    assert np.array_equal(view[np.array([3, 0])], IMAGES[[0, 4]])
    assert np.array_equal(view[np.array([True, False, False, True])], IMAGES[[4, 0]])
    assert np.array_equal(view[1], IMAGES[2])
    window = view[:, 1:3, 2:]
    assert isinstance(window, RowView) and isinstance(window.rows, np.memmap)
    assert np.array_equal(window, IMAGES[[4, 2, 6, 0], 1:3, 2:])
    assert np.array_equal(np.asarray(view, "float32"), IMAGES[[4, 2, 6, 0]].astype("float32"))
    assert np.array_equal(list(view), IMAGES[[4, 2, 6, 0]])


def test_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SECONDS", 0.0)
    lines = []
    open_store(source(one_by_one()), tmp_path, lines.append)
    assert lines == [f"{folder_of(tmp_path)}: {n} of 7 images" for n in range(1, ROWS + 1)]
