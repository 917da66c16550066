"""The line of progress at any width, what stays of it, and results in words."""

import pytest

from keras_capsule_poe.families import get
from keras_capsule_poe.training import progress as module
from keras_capsule_poe.training.progress import ProgressLine
from keras_capsule_poe.training.reporter import LONG, Reporter

STAGES = ["autoencoder", "features", "encoder", "decoder", "export"]
METRICS = {"loss": 0.25, "held_out_relative_error": 0.125, "update_size": 3.0}


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves on by a second at each look."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(seconds)))


def trained(monkeypatch, width, steps=40):
    """What a terminal of some width gets of a stage, as frames and as lines that stay."""
    written = []
    size = type("Size", (), {"columns": width})
    monkeypatch.setattr(module.shutil, "get_terminal_size", lambda: size)
    monkeypatch.setattr(module.sys.stdout, "write", written.append)
    monkeypatch.setattr(module.sys.stdout, "flush", lambda: None)
    with ProgressLine(STAGES, verbose=1, notes=True) as line:
        line.steps = {"autoencoder": 100, "encoder": 40, "decoder": 60}
        line.stage_began("encoder")
        line.stage_started("encoder", epochs=1, steps=steps)
        for step in range(1, steps + 1):
            line.step("encoder", 0, step, {"loss": 0.5})
        line.epoch("encoder", 1, METRICS)
        line.stage_ended()
        line.stage_finished("encoder", 77.0)
    text = "".join(written)
    frames = [frame.split("\n")[0] for frame in text.split("\r")]
    stays = [part.split("\r")[-1] for part in text.split("\n")]
    return [frame for frame in frames if "left" in frame], [part for part in stays if part]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_line_fits_and_tells_stage_and_time(monkeypatch, clock, capsys, width):
    frames, stays = trained(monkeypatch, width)
    assert frames and all(len(frame.rstrip()) <= width for frame in (*frames, *stays))
    # Its number, and the time of the stage and of the run, on any width.
    assert all("[3/5] encoder" in frame and "all " in frame for frame in frames)
    assert all(
        ("█" in frame) == (width >= 80) for frame in frames[len(frames) // 2 :] if width != 60
    )
    assert width == 60 or all(("loss" in frame) == (width >= 80) for frame in frames)
    assert any(line.startswith("[3/5] encoder") and "77 s" in line for line in stays)
    (end,) = [line for line in stays if line.startswith("[3/5] encoder")]
    assert ("held-out error 0.125" in end) == (width >= 60)
    assert ("no better than the mean" in end) == (width >= 120)


def test_a_long_training_is_announced_once(monkeypatch, clock, capsys):
    # A step takes more than a second of this clock.
    _, stays = trained(monkeypatch, 120, steps=int(LONG))
    said = [line for line in stays if "in all" in line]
    assert len(said) == 1 and "interrupt" in said[0]


def test_lines_are_brief_or_full():
    lines = []
    for brief in (True, False):
        Reporter(lines.append, brief=brief).epoch("encoder", 1, METRICS)
    assert lines == [
        "encoder: epoch 1: held-out error 0.125  loss 0.25",
        "encoder: epoch 1: loss 0.25  held_out_relative_error 0.125  update_size 3",
    ]


@pytest.mark.parametrize(
    "family, stages, words",
    [
        (
            "capsules",
            {
                "encoder": {
                    "capsules": {
                        "won": [0.5, 0.25, 0.25, 0.0], "class_coverage": 9, "classes": 10,
                        "purity": 0.75,
                    }
                },
                "decoder": {"held_out_relative_error": 0.15},
            },
            ["85%", "3 of 4 capsules", "9 of 10 classes", "75%"],
        ),
        ("neurons", {"experts": {"held_out_relative_error": 0.4, "won": [1.0]}}, ["60%", "1 of 1"]),
        ("rbm", {"rbm": {"held_out_relative_error": 0.2}}, ["80%"]),
        ("capsnet", {"capsnet": {"held_out_accuracy": 0.993}}, ["99.3%"]),
        ("matrix-capsules", {"matrix": {"held_out_accuracy": 0.5}}, ["50.0%"]),
        ("capsules", {}, []),
    ],
)  # fmt: skip
def test_results_are_told_in_words(family, stages, words):
    found = " ".join(get(family).verdict(stages))
    assert all(word in found for word in words) and bool(found) == bool(words)
