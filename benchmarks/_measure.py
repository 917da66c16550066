"""What the benchmarks share: time, peak memory, the machine's own rate, tables and JSON.

Every case runs in a child process, see `_children`, forked after the imports and before
TensorFlow starts, so that no case sees another's memory. Nothing here runs a TensorFlow operation
in the parent.
"""

import argparse
import json
import os
import platform
import resource
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# As the commands do.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import _children as children
import numpy as np
import tensorflow as tf

MB = 1e6


def parser(description):
    """The command line that all benchmarks have; SIGTERM ends them as Ctrl-C does."""
    children.exit_on_sigterm()
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quick", action="store_true", help="the smallest case of each kind only")
    return parser


def extra_peak_mb(call):
    """Runs `call` once; megabytes that its process needed at most, above what it had before."""
    before = _resident()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak starts anew
    except OSError:
        pass
    call()
    return max(0.0, (_peak() - before) / MB)


def peak_mb():
    """Megabytes that this process needed at most."""
    return _peak() / MB


def resident_mb():
    """Megabytes that this process has in memory now."""
    return _resident() / MB


class Most:
    """The most that a question is answered, asked again and again, and once more at the end.

    Args:
        ask: Function without arguments to a number.
        seconds: float, from one answer to the next question.
    """

    def __init__(self, ask, seconds=0.01):
        self.most, self._ask, self._seconds = 0, ask, seconds

    def __enter__(self):
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        is_ended = False
        while not is_ended:
            is_ended = self._ended.wait(self._seconds)
            self.most = max(self.most, self._ask())


def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def _resident():
    return status("VmRSS:") if os.path.exists("/proc/self/status") else _peak()


def _peak():
    if os.path.exists("/proc/self/status"):
        return status("VmHWM:")
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def times(calls, seconds=3.0, most=30):
    """Least milliseconds of each call, all taken in turn, so that noise meets them alike.

    Args:
        calls: Dict of functions without arguments, run once before.
        seconds: How long to go on, about, and at least two rounds.
        most: Rounds at most.

    Returns:
        Dict of floats.
    """
    least = dict.fromkeys(calls, float("inf"))
    start, rounds = time.perf_counter(), 0
    while rounds < 2 or (rounds < most and time.perf_counter() - start < seconds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            least[name] = min(least[name], 1e3 * (time.perf_counter() - begin))
        rounds += 1
    return least


def large_product(size=2048):
    """A function that multiplies two large float32 matrices, and its floating-point operations."""
    matrix = tf.random.stateless_normal((size, size), seed=(0, 0))
    product = tf.function(lambda: tf.reduce_sum(matrix @ matrix))
    product()
    return product, 2.0 * size**3


def available_mb():
    """Memory that can still be had."""
    try:
        with open("/proc/meminfo") as file:
            line = next(line for line in file if line.startswith("MemAvailable"))
        return int(line.split()[1]) / 1e3
    except OSError:
        return 8e3


def relative_error(ours, theirs):
    """Largest difference of two arrays over the largest entry of the second."""
    ours, theirs = np.asarray(ours, "float64"), np.asarray(theirs, "float64")
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def machine():
    """The machine and the versions, in words."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        model = names[0] if names else model
    except OSError:
        pass
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count()
    return {
        "processor": model,
        "cores": cores,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
    }


def report(rows, columns, path=None, **more):
    """Prints the rows as a table of these columns, and writes them all to `path`."""
    about = machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    table(rows, columns)
    if path:
        with open(path, "w") as file:
            json.dump({"machine": about, **more, "rows": rows}, file, indent=1)
            file.write("\n")


def table(rows, columns):
    """Prints the rows as a table of these columns."""
    lines = [list(columns)] + [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths)))


def cell(value):
    """A value of a table, as text."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 10 else f"{value:.0f}"
    return str(value)
