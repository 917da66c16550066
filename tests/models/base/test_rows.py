"""Rows that a stage computes once: gone on with where they stood, and never with other bytes."""

import resource
import shutil
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from keras_capsule_poe.data import store
from keras_capsule_poe.data.mapping import CHUNK
from keras_capsule_poe.distributed.distribution import Distribution
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import read_record, write_record
from keras_capsule_poe.models.base.features import _write_rows as write_rows
from keras_capsule_poe.training import RunFolder

N = 3 * CHUNK + 7
ROWS = np.random.default_rng(0).normal(size=(N, 3)).astype("float16")
NAME = "features/train.npy"


class Killed(BaseException):
    pass


@pytest.fixture
def run(tmp_path):
    """What stands for a run that says after each chunk how far it is."""
    folder = RunFolder(tmp_path)
    return SimpleNamespace(
        path=lambda name: tmp_path / name,
        folder=folder,
        is_chief=True,
        distribution=Distribution(),
        settings=SimpleNamespace(checkpoint_seconds=0.0),
    )


def compute(asked, dies_at=None, rows=ROWS):
    """Gives rows, and notes which; dies when those from `dies_at` on are asked for."""

    def rows_of(chunk):
        if chunk.start == dies_at:
            raise Killed
        asked.append(chunk.start)
        return rows[chunk]

    return rows_of


def stop_after(run, chunks, **options):
    with pytest.raises(Killed):
        write_rows(run, NAME, N, compute([], chunks * CHUNK), **options)


def kept(run):
    return run.folder.stage("features") / "checkpoints" / "train.npy"


@pytest.mark.parametrize("chunks, stays", [(1, True), (3, True), (2, False)])
def test_it_goes_on_where_it_stood(run, chunks, stays):
    stop_after(run, chunks, stays=stays)
    assert not run.path(NAME).exists()
    asked = []
    path = write_rows(run, NAME, N, compute(asked), stays)
    assert asked == [k * CHUNK for k in range(chunks, 4)]
    assert path == (run.path(NAME) if stays else kept(run))
    np.testing.assert_array_equal(np.load(path), ROWS)
    assert kept(run).exists() is not stays


@pytest.mark.parametrize("stays", [True, False])
def test_what_is_whole_is_not_computed_again(run, stays):
    """Rejects a progress that is lost when the file moves to its place."""
    paths = {write_rows(run, NAME, N, compute([]), stays) for _ in range(2)}
    asked = []
    paths.add(write_rows(run, NAME, N, compute(asked), stays))
    assert asked == [] and len(paths) == 1
    np.testing.assert_array_equal(np.load(paths.pop()), ROWS)


def test_what_was_killed_before_it_moved_is_moved(run):
    path = write_rows(run, NAME, N, compute([]))
    shutil.move(path, kept(run))
    write_rows(run, NAME, N, compute([], dies_at=0))
    np.testing.assert_array_equal(np.load(path), ROWS)


def test_rows_after_the_last_word_are_computed_again(run):
    """As after a power cut: only what was brought to disk before that was said counts."""
    stop_after(run, 2)
    with open(kept(run), "ab") as file:
        file.write(bytes(1000))
    asked = []
    write_rows(run, NAME, N, compute(asked))
    assert asked == [2 * CHUNK, 3 * CHUNK]
    np.testing.assert_array_equal(np.load(run.path(NAME)), ROWS)


@pytest.mark.parametrize("is_intact", [True, False])
def test_rows_of_an_older_version_go_on_if_their_sum_is_right(run, is_intact):
    stop_after(run, 2)
    sum_of_rows = zlib.crc32(kept(run).read_bytes()) ^ (not is_intact)
    record = {"rows": 2 * CHUNK, "sum": sum_of_rows}
    write_record(kept(run).with_suffix(".json"), record, copy=False)
    asked = []
    write_rows(run, NAME, N, compute(asked))
    assert asked[0] == (2 * CHUNK if is_intact else 0)
    np.testing.assert_array_equal(np.load(run.path(NAME)), ROWS)


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def of_another_size(path):
    np.save(path, np.zeros((2 * CHUNK, 3), "float16"))


def progress_cut(path):
    progress = path.with_suffix(".json")
    progress.write_bytes(progress.read_bytes()[:20])


def progress_of_other_kinds(path):
    write_record(path.with_suffix(".json"), {"rows": "two", "columns": {"train": None}}, copy=False)


def progress_of_more(path):
    record = read_record(path.with_suffix(".json"))
    write_record(path.with_suffix(".json"), {**record, "rows": N}, copy=False)


DAMAGES = [
    flip, cut, of_another_size, progress_cut, progress_of_other_kinds, progress_of_more,
    lambda path: path.unlink(), lambda path: path.write_bytes(b""),
    lambda path: path.with_suffix(".json").unlink(),
]  # fmt: skip


def test_what_is_not_what_was_written_is_computed_anew(run):
    for damage in DAMAGES:
        stop_after(run, 2)
        damage(kept(run))
        asked = []
        write_rows(run, NAME, N, compute(asked))
        assert asked == [k * CHUNK for k in range(4)], damage
        np.testing.assert_array_equal(np.load(run.path(NAME)), ROWS)
        run.path(NAME).unlink()
        run.folder.forget(["features"])


def test_a_file_of_another_run_in_its_place_is_not_taken_up(run):
    stop_after(run, 2)
    kept(run).unlink()
    np.save(run.path(NAME), np.zeros((N, 3), "float16"))
    write_rows(run, NAME, N, compute([]))
    np.testing.assert_array_equal(np.load(run.path(NAME)), ROWS)


def test_it_is_forgotten_with_the_checkpoints(run):
    """Else rows of other weights would stand beside new ones."""
    stop_after(run, 2)
    run.folder.forget(["features"])
    asked = []
    write_rows(run, NAME, N, compute(asked, rows=-ROWS))
    assert asked[0] == 0
    np.testing.assert_array_equal(np.load(run.path(NAME)), -ROWS)


def test_no_rows_have_the_shape_of_rows(run):
    for _ in range(2):
        write_rows(run, NAME, 0, lambda chunk: ROWS[chunk])
        assert np.load(run.path(NAME)).shape == (0, 3)


def test_a_full_disk_is_one_error_and_what_is_there_counts(run):
    """Rejects writing through a memory map, where the process dies of SIGBUS."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for one chunk and a half.
    resource.setrlimit(resource.RLIMIT_FSIZE, (128 + CHUNK * 9, limits[1]))
    try:
        with pytest.raises(RunFailed, match="Cannot write .*train.npy: File too large"):
            write_rows(run, NAME, N, compute([]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not run.path(NAME).exists()
    asked = []
    write_rows(run, NAME, N, compute(asked))
    assert asked[0] == CHUNK
    np.testing.assert_array_equal(np.load(run.path(NAME)), ROWS)


def test_words_are_rare(run, monkeypatch):
    """Bringing to disk takes its time: not after each chunk."""
    said = []
    monkeypatch.setattr(
        store, "write_record", lambda path, record, copy: said.append(record["rows"])
    )
    run.settings.checkpoint_seconds = 60.0
    stop_after(run, 2)
    assert said == [2 * CHUNK]
