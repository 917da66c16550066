"""The benchmark that kills trainings finds each thing that could go wrong."""

import random
import sys

import kill
import pytest

# Stands for a training: ten steps, each saved, and what it left at the end.
PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--model-dir") + 1])
stage, saved = folder / "rbm", folder / "rbm" / "checkpoints" / "step-1" / "state.json"
starts = folder / "starts"
saved.parent.mkdir(parents=True, exist_ok=True)
starts.write_text((starts.read_text() if starts.exists() else "") + "x")
{fault}
step = int(saved.read_text()) if saved.exists() else 0
while step < 10:
    time.sleep(0.03)
    step += 1
    saved.with_name("new").write_text(str(step))
    os.replace(saved.with_name("new"), saved)
(stage / "history.json").write_text(json.dumps([{{"epoch": 1, "loss": {loss}, "seconds": 1}}]))
(stage / "done.json").write_text("{{}}")
for path in sorted((stage / "checkpoints").rglob("*"), reverse=True):
    path.unlink() if path.is_file() else path.rmdir()
(stage / "checkpoints").rmdir()
"""
FAULTS = {
    "none": ("", "0.5"),
    "different": ("", "len(starts.read_text())"),
    "leftovers": ("(folder / '.half').touch()", "0.5"),
    "failed": ("assert starts.read_text() == 'x', 'cannot go on'", "0.5"),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        "different",
        pytest.param("none", marks=pytest.mark.long),
        pytest.param("leftovers", marks=pytest.mark.long),
        pytest.param("failed", marks=pytest.mark.long),
    ],
)
def test_what_goes_wrong_is_counted_and_told(tmp_path, monkeypatch, fault):
    text, loss = FAULTS[fault]
    program = PROGRAM.format(fault=text, loss=loss)
    # Without its packages Python starts sooner: a Ctrl-C while it starts ends it with 1.
    monkeypatch.setattr(kill.tiny, "CAPSPOE", [sys.executable, "-S", "-c", program])
    row, problems = kill.killed("rbm", 4, random.Random(0), tmp_path, epochs=1)
    counted = {name: row[name] for name in ("failed", "different", "leftovers") if row[name]}
    assert list(counted) == ([] if fault == "none" else [fault])
    assert bool(problems) == bool(counted)
    assert row["moments"] == 4 and 1 <= row["runs"] <= 50
    if fault == "failed":
        assert any("cannot go on" in problem for problem in problems)
    # Steps take 30 ms; the rest is what a start takes on a busy machine.
    assert row["lost_s"] < row["alone_s"] + 1
