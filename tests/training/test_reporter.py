"""Lines of progress."""

import time

from keras_capsule_poe.training import Reporter, Run


def said(reporter, lines, words, within=5.0):
    ends = time.monotonic() + within
    while time.monotonic() < ends:
        if any(words in line for line in lines):
            return next(line for line in lines if words in line)
        time.sleep(0.01)
    raise AssertionError(f"{words!r} was not said: {lines}")


def test_a_stage_that_works_in_silence_says_so():
    lines = []
    reporter = Reporter(lines.append, silence=0.05)
    reporter.stage_began("features")
    said(reporter, lines, "features: working for 0 s")
    reporter.stage_ended()
    count = len(lines)
    time.sleep(0.2)
    assert len(lines) <= count + 1, "it went on after the stage had ended"


def test_loading_images_for_long_is_told():
    lines = []
    reporter = Reporter(lines.append, silence=0.05)
    run = Run(None, None, reporter, lambda: said(reporter, lines, "images: working for 0 s"))
    assert run.load() == run.data == lines[0]


def test_training_says_how_far_and_how_fast_it_is():
    lines = []
    reporter = Reporter(lines.append, silence=0.05)
    reporter.batch_size = 32
    reporter.stage_began("encoder")
    reporter.stage_started("encoder", epochs=2, steps=50, first_step=10)
    assert lines == ["encoder: resumed after step 10 of 100"]
    for step in range(11, 21):
        reporter.step("encoder", 0, step, {"loss": 0.5})
    line = said(reporter, lines, "encoder: step 20 of 100")
    reporter.stage_ended()
    assert "images/s" in line and line.endswith("loss 0.5")
    rate = float(line.split(", ")[1].split()[0])
    assert rate > 32 * 10 / 5  # ten steps within five seconds


def test_what_comes_after_the_last_step_has_no_pace():
    lines = []
    reporter = Reporter(lines.append, silence=0.05)
    reporter.stage_began("encoder")
    reporter.stage_started("encoder", epochs=1, steps=2)
    reporter.step("encoder", 0, 2, {"loss": 0.5})
    assert "images/s" not in said(reporter, lines, "encoder: trained, working for 0 s")
    reporter.stage_ended()


def test_no_line_comes_between_frequent_ones():
    lines = []
    reporter = Reporter(lines.append, silence=0.5)
    reporter.stage_began("encoder")
    for _ in range(8):
        time.sleep(0.1)
        reporter.epoch("encoder", 1, {"loss": 1.0})
    reporter.stage_ended()
    assert lines == ["encoder: epoch 1: loss 1"] * 8
