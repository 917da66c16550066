"""Atomic files and folders; nothing pretends to have been deleted, and what others write stays."""

import errno
import hashlib
import os
import subprocess
import sys
import threading

import pytest

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io import atomic
from keras_capsule_poe.io.atomic import (
    atomic_write,
    check_writable,
    remove,
    remove_stale_files,
    temporary_path,
)
from keras_capsule_poe.io.records import digest, read_json, write_json


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def calls(monkeypatch):
    """Calls of fsync and of renaming, in order, as (name, path)."""
    made = []

    def watch(name, path_of):
        real = getattr(os, name)

        def call(*arguments):
            made.append((name, path_of(arguments[0])))
            return real(*arguments)

        monkeypatch.setattr(atomic.os, name, call)

    watch("fsync", lambda handle: os.readlink(f"/proc/self/fd/{handle}"))
    watch("replace", str)
    watch("rename", str)
    return made


def refuse(*arguments):
    raise OSError(errno.EIO, "Input/output error")


def test_file_appears_whole(tmp_path):
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"a": 1})
    assert read_json(path) == {"a": 1}
    assert names(path.parent) == ["a.json"]


def test_failure_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_full_disk_is_one_clear_error(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(RunFailed, match="a.txt: No space left"), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")
    assert not names(tmp_path)


def test_folder_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "1"
    path.mkdir()
    (path / "stale").touch()
    with atomic_write(path) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert names(path) == ["new"]
    assert names(tmp_path) == ["1"]


def test_bytes_reach_the_disk_before_the_name_and_the_name_afterwards(tmp_path, calls):
    with atomic_write(tmp_path / "a.npz", suffix=".npz") as temporary:
        temporary.write_text("new")
    written = str(temporary)
    assert calls == [("fsync", written), ("replace", written), ("fsync", str(tmp_path))]


def test_every_file_of_a_folder_reaches_the_disk_before_its_name(tmp_path, calls):
    with atomic_write(tmp_path / "1") as temporary:
        (temporary / "deep").mkdir(parents=True)
        for name in ("a", "deep/b"):
            (temporary / name).write_text(name)
    kinds = [kind for kind, _ in calls]
    assert kinds.index("replace") == len(calls) - 2
    synced = {path for kind, path in calls[:-2]}
    assert synced == {str(temporary / name) for name in ("a", "deep", "deep/b")} | {str(temporary)}
    assert calls[-1] == ("fsync", str(tmp_path))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_file_that_cannot_be_finished_keeps_the_old_one(tmp_path, monkeypatch, step):
    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(atomic.os, step, refuse)
    with (
        pytest.raises(RunFailed, match="Cannot write .*a.txt: Input"),
        atomic_write(path) as temporary,
    ):
        temporary.write_text("new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("step", ["fsync", "first rename", "second rename"])
def test_a_folder_that_cannot_be_finished_keeps_the_old_one(tmp_path, monkeypatch, step):
    path = tmp_path / "1"
    path.mkdir()
    (path / "old").touch()
    rename, tried = os.rename, []

    def fail_once(*arguments):
        tried.append(arguments)
        if len(tried) == (1 if step == "first rename" else 2):
            refuse()
        rename(*arguments)

    if step == "fsync":
        monkeypatch.setattr(atomic.os, "fsync", refuse)
    else:
        monkeypatch.setattr(atomic.os, "rename", fail_once)
    with pytest.raises(RunFailed, match="Cannot write"), atomic_write(path) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert names(path) == ["old"]
    assert names(tmp_path) == ["1"]


def test_a_file_system_that_cannot_sync_folders_is_no_failure(tmp_path, monkeypatch):
    def only_files(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(atomic.os, "fsync", only_files)
    write_json(tmp_path / "a.json", 1)
    assert read_json(tmp_path / "a.json") == 1


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, exists):
    target, link = tmp_path / "elsewhere" / "real.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    with atomic_write(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert not target.is_symlink()
    assert names(target.parent) == ["real.txt"]


def test_a_link_to_a_folder_stays(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["new"]


def test_a_fifo_is_written_into(tmp_path):
    path = tmp_path / "pipe.npz"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    with atomic_write(path, suffix=".npz") as temporary:
        assert temporary.suffix == ".npz"
        temporary.write_bytes(b"all of it")
    reader.join(10)
    assert read == [b"all of it"]
    assert path.is_fifo()
    assert names(tmp_path) == ["pipe.npz"]


def test_a_device_is_written_into(tmp_path):
    (tmp_path / "null").symlink_to(os.devnull)
    write_json(tmp_path / "null", 1)
    assert (tmp_path / "null").is_symlink()
    assert names(tmp_path) == ["null"]
    assert not os.path.isfile(os.devnull)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_the_programs_own_output_is_written_into(tmp_path, kind):
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    program = (
        "from keras_capsule_poe.io.records import write_json; print('before');"
        f"write_json({str(tmp_path / 'stdout')!r}, 7); print('after')"
    )
    if kind == "pipe":
        shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert shown.stdout == "before\n7\nafter\n", shown.stderr
    else:
        with open(tmp_path / "out", "w") as out:
            subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
        assert (tmp_path / "out").read_text() == "before\n7\nafter\n"
    assert (tmp_path / "stdout").is_symlink()


@pytest.fixture(scope="module")
def dead():
    """The token of a process that runs no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{process.pid:06x}ab"


def test_what_killed_processes_left_of_this_file_is_removed(tmp_path, dead):
    alive = f"{os.getppid():06x}ab"
    own = f"{os.getpid():06x}zz".replace("zz", "cd")
    for name in (f".a.npz.{dead}.npz", f".a.npz.{dead}", f".a.npz.{own}", f".a.npz.{alive}.npz"):
        (tmp_path / name).touch()
    (tmp_path / f".a.npz.{dead}.npz.old").mkdir()
    (tmp_path / f".b.npz.{dead}").touch()
    with atomic_write(tmp_path / "a.npz", suffix=".npz") as temporary:
        temporary.touch()
    assert names(tmp_path) == [f".a.npz.{alive}.npz", f".b.npz.{dead}", "a.npz"]


def test_a_kill_while_writing_leaves_nothing_for_good(tmp_path):
    program = (
        "import os, signal; from keras_capsule_poe.io.atomic import atomic_write\n"
        f"with atomic_write({str(tmp_path / 'a')!r}) as temporary:\n"
        "    temporary.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program])
    assert len(names(tmp_path)) == 1 and not (tmp_path / "a").exists()
    write_json(tmp_path / "a", 1)
    assert names(tmp_path) == ["a"]


def test_two_writers_of_one_file_in_one_process_do_not_meet(tmp_path):
    with atomic_write(tmp_path / "a") as first, atomic_write(tmp_path / "a") as second:
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a").read_text() == "first"
    assert names(tmp_path) == ["a"]


def test_a_name_that_is_too_long_is_one_clear_error(tmp_path):
    with pytest.raises(RunFailed, match="File name too long"), atomic_write(tmp_path / ("n" * 300)):
        pass


def test_damaged_json_is_named(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("{")
    with pytest.raises(RunFailed, match="run.json is damaged") as caught:
        read_json(path, hint="fresh")
    assert caught.value.hint == "fresh"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RunFailed, match="run.json is damaged"):
        read_json(path)
    with pytest.raises(RunFailed, match="none.json: No such file"):
        read_json(tmp_path / "none.json")


def test_what_json_has_no_word_for_is_null(tmp_path):
    path = tmp_path / "figures.json"
    write_json(path, {"a": float("nan"), "b": [1.5, float("-inf")], "c": {"d": (float("inf"), 2)}})
    assert read_json(path) == {"a": None, "b": [1.5, None], "c": {"d": [None, 2]}}
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()


def test_digest_is_the_sum_of_the_bytes(tmp_path):
    content = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(content)
    assert digest(tmp_path / "a") == hashlib.sha256(content).hexdigest()
    with pytest.raises(RunFailed, match="Cannot read .*none"):
        digest(tmp_path / "none")


def test_folder_that_is_a_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(RunFailed, match="file") as caught:
        check_writable(path)
    assert caught.value.hint == "model_dir"


def test_remove_takes_files_links_and_folders(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "kept").touch()
    (tmp_path / "link").symlink_to("folder/deep")
    for name in ("link", "file", "none"):
        remove(tmp_path / name)
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder" / "deep") == ["kept"]
    remove(tmp_path / "folder")
    assert not names(tmp_path)


def test_what_cannot_be_deleted_is_named(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()

    def forbidden(path, *arguments, **keywords):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "unlink", forbidden)
    # Python 3.13 names the folder that it is in.
    with pytest.raises(RunFailed, match="Cannot delete .*a.*: .*Permission denied: .*['/][bc]'"):
        remove(tmp_path / "a")
    assert (tmp_path / "a" / "b" / "c").exists()


def test_whatever_killed_processes_were_writing_is_removed(tmp_path, dead):
    alive = f"{os.getppid():06x}ab"
    kept = [".bashrc", ".lock", ".run.json", ".a.12345", ".git", f".a.npz.{alive}.npz", "a.npz"]
    for name in (*kept, f".a.npz.{dead}.npz", f".b.txt.{dead}", f".c.PNG.{dead}.PNG"):
        (tmp_path / name).touch()
    (tmp_path / f".1.{dead}" / "variables").mkdir(parents=True)
    with temporary_path(tmp_path / "mine") as mine:
        mine.touch()
        remove_stale_files(tmp_path)
        assert names(tmp_path) == sorted([*kept, mine.name])
    remove_stale_files(tmp_path / "none")


def test_what_was_put_aside_comes_back_where_nothing_took_its_place(tmp_path, dead):
    for name in ("1", "2"):
        old = tmp_path / f".{name}.{dead}.old"
        old.mkdir()
        (old / "whole").touch()
    (tmp_path / "2").mkdir()
    remove_stale_files(tmp_path)
    assert names(tmp_path) == ["1", "2"]
    assert names(tmp_path / "1") == ["whole"] and names(tmp_path / "2") == []


def test_files_of_another_container_stay(tmp_path):
    with atomic.temporary_path(tmp_path / "a") as mine:
        theirs = mine.with_name(f".a.{1:06x}{'ffff'}ab")
        assert atomic._process_space() != "ffff"
        theirs.touch()
        atomic.remove_stale_files(tmp_path)
        assert theirs.exists()
        os.utime(theirs, (0, 0))
        atomic.remove_stale_files(tmp_path)
        assert not theirs.exists()


def test_a_version_that_another_process_took_is_left_alone(tmp_path):
    taken = iter([1, 2])

    def next_name():
        return str(next(taken))

    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "theirs").touch()
    written = atomic.write_next(tmp_path, lambda folder: folder.mkdir(), next_name)
    assert written == tmp_path / "2" and os.listdir(tmp_path / "1") == ["theirs"]


def test_a_folder_that_cannot_be_renamed_is_replaced(tmp_path, monkeypatch):
    target = tmp_path / "1"
    target.mkdir()
    (target / "old").touch()
    rename = os.rename

    def overlay(source, other):
        if os.fspath(source) == os.fspath(target):
            raise OSError(18, "Invalid cross-device link")
        return rename(source, other)

    monkeypatch.setattr(os, "rename", overlay)
    with atomic_write(target) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert os.listdir(target) == ["new"] and os.listdir(tmp_path) == ["1"]
