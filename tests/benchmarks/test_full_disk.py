"""The benchmark that fills the disk finds each thing that could go wrong."""

import sys

import full_disk
import pytest

# Stands for a training: a small stage and a larger one, each written beside its place first.
PROGRAM = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--model-dir") + 1])

def write(path, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name("new")
    try:
        with open(new, "wb") as file:
            file.write(b" " * size)
            os.fsync(file.fileno())
    except OSError:
        new.unlink()
        raise
    os.replace(new, path)

first, second = folder / "one" / "done.json", folder / "rbm" / "done.json"
starts = folder / "starts"
{fault}
try:
    folder.mkdir(exist_ok=True)
    if not first.exists() or {redo}:
        write(first, 40_000)
    starts.write_text((starts.read_text() if starts.exists() else "") + "x")
    write(second, 400_000)
    loss = {loss}
    (second.parent / "history.json").write_text(json.dumps([{{"epoch": 1, "loss": loss}}]))
except OSError as error:
    sys.exit("{said}")
"""
FAULTS = {
    "none": {},
    "failed": {"said": "Traceback: No space left on device"},
    "redone": {"redo": True},
    "different": {"loss": "len(starts.read_text())"},
    "leftovers": {"fault": "folder.mkdir(exist_ok=True), (folder / '.half').touch()"},
}


@pytest.mark.some(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_is_counted_and_told(monkeypatch, fault):
    right = {"fault": "", "redo": False, "loss": 0.5, "said": "No space left on device"}
    program = PROGRAM.format(**right | FAULTS[fault])
    monkeypatch.setattr(full_disk.tiny, "CAPSPOE", [sys.executable, "-c", program])
    try:
        row, problems = full_disk.filled("rbm", 3, epochs=1)
    except SystemExit as error:
        if "No tmpfs can be mounted" not in str(error):
            raise
        pytest.skip(str(error))
    # What the first and the second third of it fill, and the last as the program begins anew.
    assert row["full"] >= 2 and row["most_mb"] > 0.4
    kinds = ("failed", "redone", "different", "leftovers")
    assert [kind for kind in kinds if row[kind]] == ([] if fault == "none" else [fault])
    assert bool(problems) == (fault != "none")


def test_a_run_that_fails_where_there_is_room_is_no_measure(monkeypatch):
    monkeypatch.setattr(full_disk.tiny, "CAPSPOE", [sys.executable, "-c", "exit('broken')"])
    with pytest.raises(SystemExit, match="rbm fails where there is room: broken|No tmpfs"):
        full_disk.filled("rbm", 1, epochs=1)
