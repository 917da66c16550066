"""What killed processes leave goes, what others write stays."""

import os
import subprocess
import sys

import pytest

from keras_capsule_poe.io.atomic import remove_stale_files, temporary_path


@pytest.fixture(scope="module")
def dead():
    """The token of a process that runs no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{process.pid:06x}ab"


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


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
