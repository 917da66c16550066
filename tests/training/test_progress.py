"""Progress: a live line that fits, one output of a notebook, and lines of text elsewhere.

Rejected: a stage that goes on after its end; an output of a notebook for each step; a line between
frequent ones; a pace of the export after the last step.
"""

import io
import sys
import time
import types

import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.training import Reporter, Run
from keras_capsule_poe.training import progress as module

STAGES = {"autoencoder": 100, "features": 0, "encoder": 40, "decoder": 60, "export": 0}
METRICS = {"loss": 0.25, "val_relative_error": 0.125, "update_size": 3.0}


def train(reporter, seconds=0.2):
    """Reports a stage of 40 steps, in a run of five stages."""
    reporter.stages = STAGES
    with reporter:
        reporter.stage_skipped("features")
        with reporter.stage("encoder"):
            reporter.stage_started("encoder", epochs=1, steps=40)
            for step in range(1, 41):
                reporter.step("encoder", 0, step, {"loss": 0.5})
                time.sleep(seconds / 40)
            reporter.epoch("encoder", 1, METRICS)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(module, "_EVERY", 0.01)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_live_line_fits_and_has_stage_and_time(monkeypatch, often, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", Terminal())
    train(Reporter("auto"))
    written = sys.stdout.getvalue().replace("\x1b[2K", "\r")
    frames = [frame for frame in written.split("\r") if "left" in frame and "\n" not in frame]
    stays = [part.split("\r")[-1] for part in written.split("\n")]
    assert frames and all(len(frame) <= width for frame in frames)
    # Its number, and the time of the stage and of the run, on any width.
    assert all("[3/5] encoder" in frame and "all " in frame for frame in frames)
    assert "█" in frames[-1]
    assert all(("loss" in frame) == (width >= 80) for frame in frames)
    end = " ".join(line.strip() for line in stays[1:-2])
    assert "held-out error 0.125, loss 0.25" in end and all(len(line) <= width for line in stays)
    assert ("no better than the mean" in end) == (width == 120)
    assert "[2/5] features    done before" in stays and stays[-2].startswith("Trained in")


def test_a_notebook_has_one_output_of_a_training(monkeypatch, often):
    shown, made = [], []

    def display(content, raw, display_id):
        made.append(display_id)
        shown.append(content["text/plain"])
        return types.SimpleNamespace(update=lambda new, raw: shown.append(new["text/plain"]))

    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    train(Reporter("auto"))
    assert made == [True] and any("left, all" in text for text in shown)
    skipped, encoder, end = shown[-1].splitlines()
    assert "done before" in skipped and "held-out error" in encoder and "Trained in" in end


def test_lines_of_text_are_one_for_a_stage_or_one_for_an_epoch(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = {}
    for verbose in (0, 1, 2, "auto"):
        train(Reporter(verbose), seconds=0)
        found[verbose] = capsys.readouterr().out.splitlines()
    assert found[0] == []
    short = "   0 s  held-out error 0.125, loss 0.25"
    assert found[1] == [
        "[2/5] features    done before", f"[3/5] encoder     {short}", "Trained in 0 s"
    ]  # fmt: skip
    # Without a terminal, too.
    assert found["auto"] == found[1]
    assert found[2] == [
        "features: done before", "encoder: 1 epoch of 40 steps",
        "encoder: epoch 1: loss 0.25  val_relative_error 0.125  update_size 3",
        f"encoder: {short}", "Trained in 0 s",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="must be 0, 1, 2 or 'auto'. Received: verbose=3"):
        Reporter(3)


def test_a_worker_without_stages_says_nothing_at_its_end(capsys):
    for stages, said in (({}, ""), (STAGES, "Trained in 0 s\n")):
        with Reporter(1) as reporter:
            reporter.stages = stages
        assert capsys.readouterr().out == said


def test_messages_of_little_weight_are_left_out_of_python(capsys):
    for notes in (False, True):
        reporter = Reporter(1, notes=notes)
        reporter.note("96 images")
        reporter.note("1 file left out", important=True)
    assert capsys.readouterr().out.split("\n")[:-1] == [
        "1 file left out", "96 images", "1 file left out"
    ]  # fmt: skip


def test_a_long_training_is_announced_once(monkeypatch):
    # Each look at this clock takes six seconds.
    seconds = iter(range(0, 10**6, 6))
    lines = []
    reporter = Reporter(1, write=lines.append, silence=1e9)
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(seconds)))
    train(reporter, seconds=0)
    # Of 40 steps, and of 60 of a later stage.
    said = [line for line in lines if "in all" in line]
    assert len(said) == 1 and "interrupt" in said[0]


def said(lines, words, within=5.0):
    ends = time.monotonic() + within
    while time.monotonic() < ends:
        if any(words in line for line in lines):
            return next(line for line in lines if words in line)
        time.sleep(0.01)
    raise AssertionError(f"{words!r} was not said: {lines}")


def test_work_in_silence_is_told_until_it_ends():
    lines = []
    reporter = Reporter(write=lines.append, silence=0.05)

    def load():
        said(lines, "images: working for 0 s")
        return load_images("digits", limit=20)

    assert len(Run(registry.settings("rbm"), None, reporter, load).load().test) == 297
    count = len(lines)
    time.sleep(0.2)
    assert len(lines) == count, "it went on after its end"


def test_training_says_how_far_and_how_fast_it_is():
    lines = []
    reporter = Reporter(write=lines.append, silence=0.05)
    reporter.batch_size = 32
    with reporter.stage("encoder"):
        reporter.stage_started("encoder", epochs=2, steps=50, first_step=10)
        assert lines == ["encoder: resumed after step 10 of 100"]
        for step in range(11, 21):
            reporter.step("encoder", 0, step, {"loss": 0.5})
        line = said(lines, "encoder: step 20 of 100")
        reporter.step("encoder", 1, 50, {"loss": 0.5})
        assert "images/s" not in said(lines, "encoder: trained, working for 0 s")
    assert "images/s" in line and line.endswith("loss 0.5")
    rate = float(line.split(", ")[1].split()[0])
    assert rate > 32 * 10 / 5  # ten steps within five seconds


def test_a_long_silence_has_ever_fewer_lines():
    """Rejected: a line each time, which fills a log of hours."""
    lines = []
    reporter = Reporter(1, write=lines.append, silence=0.05)
    with reporter.stage("encoder"):
        time.sleep(1.0)
    # After 0.05, 0.15, 0.35 and 0.75 seconds.
    assert 1 <= len(lines) <= 5


def test_no_line_comes_between_frequent_ones():
    lines = []
    reporter = Reporter(write=lines.append, silence=0.5)
    with reporter.stage("encoder"):
        for _ in range(8):
            time.sleep(0.1)
            reporter.epoch("encoder", 1, {"loss": 1.0})
    assert lines == ["encoder: epoch 1: loss 1"] * 8
