"""A record never tells anything but what was written."""

import json
import os
from pathlib import Path

import pytest

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import (
    copy_of,
    digest,
    has_record,
    read_json,
    read_record,
    remove_record,
    write_record,
)

VALUES = {"seed": 7, "rate": 0.1, "sizes": (28, 28), "config": {"name": "é", "none": None}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.json"


def test_what_is_read_is_what_was_written(path):
    write_record(path, VALUES)
    assert read_record(path) == {**VALUES, "sizes": [28, 28]}
    assert copy_of(path).read_bytes() == path.read_bytes()


def test_no_flipped_bit_goes_unseen(path):
    write_record(path, VALUES, copy=False)
    whole, values = path.read_bytes(), read_record(path)
    seen = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found = read_record(path)
        except RunFailed as error:
            assert "damaged" in str(error)
            seen += 1
        else:
            # Between the values, or in the name of the digest.
            assert {name: found[name] for name in values} == values, place
    # Rejects a digest that is not compared: only what is no JSON would be seen then.
    assert seen > 0.6 * len(whole)


def test_it_is_changed_by_hand_without_the_line_of_its_digest(path):
    write_record(path, VALUES)
    lines = path.read_text().replace('"seed": 7', '"seed": 8').splitlines(keepends=True)
    path.write_text("".join(lines))
    assert read_record(path)["seed"] == 7  # of the copy
    path.write_text("".join(line for line in lines if '"digest"' not in line))
    assert read_record(path)["seed"] == 8


@pytest.mark.parametrize("content", ["", "\0" * 100, "{", '{"seed": 8, "digest": "0"}'])
def test_the_copy_stands_in_for_a_damaged_file(path, content):
    write_record(path, VALUES)
    path.write_text(content)
    assert read_record(path)["seed"] == 7
    copy_of(path).write_text(content)
    with pytest.raises(RunFailed, match="run.json is damaged") as failed:
        read_record(path, hint="model_dir")
    assert failed.value.hint == "model_dir"


def test_a_missing_file_has_its_copy(path):
    write_record(path, VALUES)
    path.unlink()
    assert read_record(path)["seed"] == 7


def test_a_file_without_a_digest_is_taken_as_it_is(path):
    write_record(path, VALUES)
    for content in ({"seed": 8}, [], None, 3):
        path.write_text(json.dumps(content))
        assert read_record(path) == content


def test_a_record_is_removed_with_its_copy_and_the_copy_first(path, monkeypatch):
    write_record(path, VALUES)
    removed = []
    monkeypatch.setattr("keras_capsule_poe.io.records.remove", removed.append)
    remove_record(path)
    assert removed == [copy_of(path), path]
    monkeypatch.undo()
    remove_record(path)
    assert not has_record(path) and not list(path.parent.iterdir())


def ways_to_nothing(folder):
    """Paths that would never end, or have no content of a record."""
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    with open(folder / "large", "wb") as file:
        file.truncate(10**11)
    (folder / "link").symlink_to(folder / "fifo")
    return ("/dev/zero", *(folder / name for name in ("fifo", "folder", "large", "link")))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO on this system")
@pytest.mark.parametrize("number", range(5))
def test_only_regular_files_of_some_size_are_read(tmp_path, number):
    path = Path(ways_to_nothing(tmp_path)[number])
    with pytest.raises(RunFailed, match="it must (be a file|have at most)") as error:
        read_json(path)
    assert "\n" not in str(error.value)
    with pytest.raises(RunFailed, match="it must"):
        read_record(path)
    if path.name != "large":
        with pytest.raises(RunFailed, match="it must be a file"):
            digest(path)
