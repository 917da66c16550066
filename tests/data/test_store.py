"""Images as rows on disk: the same as in memory, whatever happens while they are written."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import tracemalloc

import numpy as np
import pytest

from keras_capsule_poe.data import DataError, store
from keras_capsule_poe.data.mapping import RowView
from keras_capsule_poe.data.store import ResumableArray, Source, open_store
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import write_record

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
    return Source("some/images", about, [ROWS], lambda part, first: read(first))


def check(found):
    images, known = found
    assert isinstance(images, np.memmap) and np.array_equal(images, IMAGES)
    assert known["labels"].tolist() == list(range(ROWS))


def folder_of(directory):
    (folder,) = directory.iterdir()
    return folder


# What a source writes.


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError, OSError])
def test_interrupted_writing_goes_on_where_it_stopped(tmp_path, error):
    for fail_at in range(ROWS):
        root = tmp_path / str(fail_at)
        with pytest.raises((error, RunFailed)):
            open_store(source(one_by_one(fail_at=fail_at, error=error)), root)
        # Row after row, and none twice.
        seen, lines = [], []
        check(open_store(source(one_by_one(seen)), root, lines.append))
        assert seen == [fail_at]
        goes_on = f"{folder_of(root)}: goes on after {fail_at} of 7 images"
        assert lines == [goes_on] * (fail_at > 0)
        check(open_store(source(one_by_one(seen)), root))
        assert seen == [fail_at], "it was written again"
        assert sorted(path.name for path in folder_of(root).iterdir()) == [
            ".lock", ".store.json", "images.npy", "labels.npy", "store.json"
        ]  # fmt: skip


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    from keras_capsule_poe.data import store
    store.SECONDS = 0.0

    def read(part, first):
        for row in range(first, 7):
            if row == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            yield np.zeros((1, 6, 5, 1), np.uint8), {"labels": np.array([row])}

    store.open_store(store.Source("some/images", {}, [7], read), sys.argv[1])
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


def test_a_store_begun_by_an_older_version_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        open_store(source(one_by_one(fail_at=4)), tmp_path)
    progress = folder_of(tmp_path) / store.PROGRESS
    write_record(progress, {"rows": 3, "columns": ["images", "labels"]}, copy=False)
    seen = []
    check(open_store(source(one_by_one(seen)), tmp_path))
    assert seen == [3]


def test_grey_rows_turn_rgb_with_the_first_rgb_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.data.store._BLOCK", 2)
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
    assert caught.value.hint == "image_size"


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
    assert caught.value.hint == "store_dir"
    lines = []
    images, _ = open_store(source(read), tmp_path, lines.append)
    assert np.array_equal(images, large)
    assert "goes on after 3 of 7" in lines[0]


def test_grey_rows_stay_where_the_disk_is_full_before_they_are_rgb(tmp_path):
    """A file may hold three grey images, and not these as RGB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    grey = RANDOM.integers(0, 256, (3, 16, 16, 1), dtype=np.uint8)
    colour = RANDOM.integers(0, 256, (ROWS - 3, 16, 16, 3), dtype=np.uint8)
    asked = []

    def read(first):
        asked.append(first)
        if not first:
            yield grey, {}
        yield colour, {}

    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(RunFailed, match="File too large. 3 of 7 rows are kept"):
            open_store(source(read), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in folder_of(tmp_path).iterdir() if path.suffix == ".npy") == [
        "images.npy"
    ]
    images, _ = open_store(source(read), tmp_path)
    assert asked == [0, 3]
    assert np.array_equal(images, np.concatenate([np.repeat(grey, 3, -1), colour]))


WRITER = textwrap.dedent(
    """
    import sys, time
    import numpy as np
    from keras_capsule_poe.data.store import Source, open_store

    def read(part, first):
        print("writes", flush=True)
        for row in range(first, 7):
            time.sleep(0.1)
            yield np.full((1, 6, 5, 1), row, np.uint8), {"labels": np.array([row])}

    images, known = open_store(Source("some/images", {}, [7], read), sys.argv[1], print)
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


@pytest.mark.parametrize("how", ["cut", "emptied", "flipped", "gone"])
def test_a_damaged_store_is_written_again(tmp_path, how):
    for name in ["images.npy", "labels.npy", "store.json"]:
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


def test_sums_are_taken_of_files_that_were_touched(tmp_path, monkeypatch):
    open_store(source(one_by_one()), tmp_path)
    read, take = [], store.digest
    monkeypatch.setattr(store, "digest", lambda path: read.append(path.name) or take(path))
    check(open_store(source(None), tmp_path))
    assert not read
    os.utime(folder_of(tmp_path) / "images.npy", ns=(0, 1))
    for _ in range(2):
        check(open_store(source(None), tmp_path))
    assert read == ["images.npy"]


def test_other_settings_are_another_store(tmp_path):
    for size in (None, [6, 5]):
        check(open_store(source(one_by_one(), image_size=size), tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_place_that_cannot_be_written_is_a_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailed, match="Cannot write in the folder") as caught:
        open_store(source(one_by_one()), tmp_path / "file")
    assert caught.value.hint == "store_dir"


def test_reading_takes_no_memory_that_grows_with_the_store(tmp_path):
    """52 MB on disk; nothing of it is copied but the batches, of 0.1 MB each, and the order."""
    rows = 2**16
    block = np.zeros((4096, 28, 28, 1), np.uint8)

    def read(part, first):
        for _ in range(first, rows, len(block)):
            yield block, {"labels": np.zeros(len(block), np.int64)}

    tracemalloc.start()
    try:
        images, known = open_store(Source("large", {}, [rows], read), tmp_path)
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


def test_a_store_that_is_written_again_stays_readable_for_those_who_have_it(tmp_path):
    images, _ = open_store(source(one_by_one()), tmp_path)
    damaged = folder_of(tmp_path) / "images.npy"
    whole = damaged.read_bytes()
    # Another process finds it damaged, by a copy of the file, and writes it anew.
    copy = damaged.with_name("copy")
    copy.write_bytes(whole[:-1])
    copy.replace(damaged)
    other, _ = open_store(source(one_by_one()), tmp_path)
    array = ResumableArray(damaged, ROWS, (6, 5, 1), "uint8")
    array.file.close()
    assert np.array_equal(images, IMAGES) and np.array_equal(other, IMAGES)
