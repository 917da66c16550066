"""A stopped benchmark leaves no child running."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SECONDS = 5.0

# Each writes its process id and sleeps.
SLEEP = """
import os, pathlib, time

def sleep(file):
    pathlib.Path(file).with_suffix(".new").write_text(str(os.getpid()))
    os.replace(pathlib.Path(file).with_suffix(".new"), file)
    time.sleep(300)
"""
# A benchmark whose case sleeps.
BENCHMARK = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import _children as children
{SLEEP}
children.exit_on_sigterm()
children.in_children(sleep, [("a",), ("b",)])
"""
# The program that runs such benchmarks; it needs no TensorFlow, whose import takes seconds.
RUN_ALL = f"""
import pathlib, sys, types
sys.path.insert(0, {str(BENCHMARKS)!r})
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
import run_all
run_all.HERE = pathlib.Path()
run_all.NAMES = ("asleep",)
run_all.main(["--out", "results"])
"""

STOPS = pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends the children of what is killed"
)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and nobody has asked how


def wait_until(holds, seconds):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


@contextlib.contextmanager
def started(program, folder):
    """The program, and the process ids of its sleepers; nothing is left behind."""
    sleepers = [folder / "a", folder / "b"]
    parent = subprocess.Popen(
        # Programs that a script started in the background inherit that interrupts are ignored.
        [
            sys.executable,
            "-c",
            f"import signal\nsignal.signal(2, signal.default_int_handler)\n{program}",
        ],
        cwd=folder,
        stderr=subprocess.PIPE,
    )
    pids = []
    try:
        begun = wait_until(lambda: all(path.exists() for path in sleepers), 60)
        assert begun, parent.poll() is not None and parent.stderr.read()
        pids = [int(path.read_text()) for path in sleepers]
        assert all(is_running(pid) for pid in pids)
        yield parent, pids
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.kill()
        parent.communicate()


@STOPS
def test_children_of_a_benchmark_end_with_it(number, tmp_path):
    with started(BENCHMARK, tmp_path) as (parent, pids):
        parent.send_signal(number)
        assert wait_until(lambda: not any(is_running(pid) for pid in pids), SECONDS)
        assert parent.wait(SECONDS) != 0


@STOPS
def test_benchmarks_end_with_what_runs_them(number, tmp_path):
    (tmp_path / "asleep.py").write_text(BENCHMARK)
    with started(RUN_ALL, tmp_path) as (parent, pids):
        parent.send_signal(number)
        assert wait_until(lambda: not any(is_running(pid) for pid in pids), SECONDS)
        assert parent.wait(SECONDS) != 0


def test_a_child_that_fails_is_an_error_and_others_end(tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import _children as children
assert children.in_children(divmod, [(7, 2), (9, 4)]) == [(3, 1), (2, 1)]
assert children.run([sys.executable, "-c", "print(3)"], stdout=-1, text=True).stdout == "3\\n"
assert children.run([sys.executable, "-c", "raise SystemExit(4)"]).returncode == 4
try:
    children.in_child(divmod, 1, 0)
except RuntimeError as error:
    assert "ZeroDivisionError" in str(error)
else:
    raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
