"""What counts as memory that grows: what a process holds, not the files that it maps."""

import sys
import time

import memory
import numpy as np
import pytest

LARGE = 64e6


@pytest.fixture
def peak():
    """The peak of a call, in MB, in a process of its own."""
    return lambda call: memory.children.in_child(memory.measured, call)["anon_mb"]


def test_a_bar_that_is_missed_is_said():
    row = {"family": "rbm", "stage": "export", "images": 200_000, "anon_mb": 900.0, "ratio": 1.04}
    assert memory.missed([row, {**row, "step_share": 0.96}]) == []
    for bad in ({"anon_mb": 2100.0}, {"ratio": 1.06}, {"step_share": 0.94}):
        (line,) = memory.missed([row, {**row, **bad}])
        assert line.startswith("rbm export: ")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells them apart")
def test_what_is_mapped_does_not_count(peak, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones(int(LARGE), np.uint8))

    def wait():
        # Longer than between two samples.
        time.sleep(0.1)

    def hold():
        held = np.ones(int(LARGE), np.uint8)
        wait()
        return held.sum()

    def read():
        held = np.load(tmp_path / "rows.npy", mmap_mode="r")
        total = held.sum()
        wait()
        return total

    nothing, held, mapped = peak(wait), peak(hold), peak(read)
    # Some MB are what one process happens to need more than another.
    assert held - nothing == pytest.approx(LARGE / 1e6, abs=10)
    assert mapped - nothing == pytest.approx(0, abs=10)
