"""Nothing is ever half-written."""

import pytest

from keras_capsule_poe.io.files import RunFailed, beside, check_writable, read_json, write_json


def test_file_appears_whole(tmp_path):
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"a": 1})
    assert read_json(path) == {"a": 1}
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


def test_failure_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), beside(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_full_disk_is_one_clear_error(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(RunFailed, match="a.txt: No space left"), beside(path) as temporary:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_folder_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "1"
    path.mkdir()
    (path / "stale").touch()
    with beside(path) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [entry.name for entry in path.iterdir()] == ["new"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["1"]


def test_damaged_json_is_named(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("{")
    with pytest.raises(RunFailed, match="run.json"):
        read_json(path)


def test_folder_that_is_a_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(RunFailed, match="file"):
        check_writable(path)
