"""Nothing pretends to have been deleted."""

import errno
import os

import pytest

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.atomic import clear_folder, remove


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


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


def test_clear_folder_empties_it_also_behind_a_link(tmp_path):
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "b").touch()
    (tmp_path / "real" / ".hidden").touch()
    (tmp_path / "link").symlink_to("real")
    clear_folder(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert not names(tmp_path / "real")
    clear_folder(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(RunFailed, match="Cannot clear .*file"):
        clear_folder(tmp_path / "file")


@pytest.mark.parametrize("delete", [remove, clear_folder])
def test_what_cannot_be_deleted_is_named(tmp_path, monkeypatch, delete):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()

    def forbidden(path, *arguments, **keywords):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "unlink", forbidden)
    # Python 3.13 names the folder that it is in.
    with pytest.raises(RunFailed, match="Cannot delete .*a.*: .*Permission denied: .*['/][bc]'"):
        delete(tmp_path / "a")
    assert (tmp_path / "a" / "b" / "c").exists()
