"""Simulated steps of many machines.

Rejected: machines that do not wait for the slowest; reading that delays nobody; reading that is
added to a step beside which it is done; a sum whose bytes grow with the machines.
"""

import doctest
import math
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import scale_plan
from scale_plan import Network, parse, stage_row, step_seconds, storage

from keras_capsule_poe.families import get
from keras_capsule_poe.training import RunConfig

CONFIG = RunConfig(get("capsules"))
STAGES = {stage.name: stage for stage in CONFIG.stages}
PARAMETERS = CONFIG.family.outline(CONFIG, scale_plan.SHAPE)[1]


def row(stage, machines, *arguments):
    args = parse(["--rate", "1e12", "--images", "1e8", *arguments])
    return stage_row(STAGES[stage], CONFIG, PARAMETERS, args, machines)


def test_examples():
    assert doctest.testmod(scale_plan).failed == 0


def test_the_slowest_of_many_is_waited_for():
    """The mean of the largest of 64 standard normal numbers is 2.34."""
    jitter = 0.01
    seconds = step_seconds(1.0, 0.0, 0.0, 64, jitter)
    # The standard error of 2,000 steps is 1e-4.
    assert seconds == pytest.approx(math.exp(2.344 * jitter), abs=5e-4)
    assert step_seconds(1.0, 0.0, 0.0, 1, jitter) == pytest.approx(1.0, abs=1e-3)


def test_reading_counts_where_it_takes_longer_than_all_else():
    for read, expected in ((0.9, 1.5), (1.4, 1.5), (2.0, 2.0)):
        assert step_seconds(1.0, 0.5, read, 4, jitter=0.0) == pytest.approx(expected)


def test_a_ring_sends_everything_twice_at_most():
    size, ring = 1e9, Network(bandwidth=1e9, latency=0.0)
    assert ring.sum_seconds(size, 2) == 1
    assert ring.sum_seconds(size, 1000) == pytest.approx(2, rel=2e-3)


def test_where_it_breaks():
    """Adding up hurts before reading does; reading all images, once there are many machines."""
    assert row("encoder", 1)["efficiency"] > 0.99
    assert row("encoder", 8)["adding"] > row("encoder", 8)["reading"]
    many = 4096
    slow = row("features", many)
    assert slow["step"] == slow["reading"] and slow["efficiency"] < 0.5
    assert row("features", many, "--shared-input")["efficiency"] > 0.99
    # Adding up does not depend on the images of a step, so larger batches pay.
    fast = ("--rate", "1e13", "--shared-input")
    large = row("encoder", 64, "--batch", "4096", *fast)
    assert large["efficiency"] > 2 * row("encoder", 64, *fast)["efficiency"]


def test_what_grows_with_the_images():
    def of(images):
        return storage(CONFIG, parse(["--rate", "1", "--images", str(images)]))

    small, large = of(10**8), of(10**9)
    for name in ("images", "codes"):
        assert large[0][name] == pytest.approx(10 * small[0][name])
    # Features are computed anew where they would take more than `features.limit`.
    assert large[0]["features"] == 0
    assert large[1]["labels and order"] == pytest.approx(16)


def hours(command, monkeypatch, capsys):
    """Hours in all that a command prints, one for each number of machines."""
    monkeypatch.setattr("sys.argv", ["scale_plan.py", *command.split()])
    scale_plan.main()
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "Hours in all" in line)
    return [
        float(found.replace(",", "")) for found in re.findall(r"machines ([^ ]+?)(?:, |$)", line)
    ]


@pytest.mark.parametrize("here", ["float32", "mixed_bfloat16"])
def test_the_page_has_these_hours_whatever_this_processor_has(here, monkeypatch, capsys):
    monkeypatch.setattr("keras_capsule_poe.training.precision.best_precision", lambda: here)
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    head, *rows = rows[-5:]
    assert [row[0] for row in rows] == ["1", "8", "64", "512"]
    for column, title in enumerate(head[1:], 1):
        command = re.search("`python benchmarks/scale_plan.py ([^`]*)`", title)[1]
        for row, expected in zip(rows, hours(command, monkeypatch, capsys)):
            if len(row) > column:
                shown = float(row[column].partition(";")[0].replace(",", ""))
                # To the digits that the page has, two at least.
                assert shown == pytest.approx(expected, rel=0.03), (command, row)
    shared = re.search("`python benchmarks/scale_plan.py ([^`]* --shared-input)`", text)[1]
    (shown,) = re.findall(r"([0-9.]+) hours instead of 0.87", text)
    assert hours(shared, monkeypatch, capsys)[-1] == pytest.approx(float(shown), rel=0.05)
