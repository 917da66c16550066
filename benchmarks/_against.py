"""An older checkout against this one: each case timed in alternating child processes.

A benchmark names its cases, and has `library_call(**case)`, which gives a function without
arguments that runs one with whichever version of the package its interpreter imports. A process
of its own for each round: what one has allocated and how it was laid out in memory does not
speak for all rounds of a version.
"""

import argparse
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from subprocess import PIPE

import _children as children
import _measure as measure
import numpy as np

HERE = Path(__file__).resolve().parent
ROUNDS, SECONDS, MOST_RATIO = 4, 2.0, 1.03
COLUMNS = "case old_ms new_ms ratio old_mb new_mb memory_ratio difference".split()


def add_arguments(parser):
    """The options of a benchmark that can compare."""
    parser.add_argument(
        "--against", type=_checkout, metavar="OLD_CHECKOUT", help="clone with a .venv to compare"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="child processes of each")
    parser.add_argument(
        "--fail", action="store_true", help=f"fail where new/old is above {MOST_RATIO}"
    )


def routing_options(**options):
    """Return options of routing by the names that the imported version of the package has."""
    if importlib.util.find_spec("keras_capsule_poe.former_names"):
        return options
    options["iterations"] = options.pop("routing_iterations") - 1
    if "softmax_over" in options:
        options["normalize"] = options.pop("softmax_over")
    return options


def compare(name, cases, args):
    """Times the cases of a benchmark, old and new in turn, and reports them.

    Args:
        name: str, of the benchmark's module.
        cases: list of dict, arguments of its `library_call`.
        args: Parsed arguments of `add_arguments` and `_measure.parser`.

    Raises:
        SystemExit: With --fail, if a case takes more than 1.03 times as long as it did.
    """
    sides = {
        "old": (_python(args.against), args.against),
        "new": (sys.executable, HERE.parent),
    }
    rows = []
    for case in cases:
        found = {side: [] for side in sides}
        for _ in range(1 if args.quick else args.rounds):
            for side, (python, checkout) in sides.items():
                found[side].append(_round(python, checkout, name, case))
        rows.append(case_row(case, **found))
        # A whole comparison takes long: what is known so far.
        print(f"{rows[-1]['case']}: new/old {rows[-1]['ratio']:.3f}", flush=True)
    measure.report(rows, COLUMNS, args.json)
    slower = [row["case"] for row in rows if row["ratio"] > MOST_RATIO]
    if slower and args.fail:
        sys.exit(f"slower than {MOST_RATIO} times the old: {'; '.join(slower)}")


def case_row(case, old, new):
    """What the rounds of a case found, old and new, as a row: the least of each and ratios."""
    values = {"case": ", ".join(f"{name} {value}" for name, value in case.items())}
    for key in ("ms", "mb"):
        for side, rounds in (("old", old), ("new", new)):
            values[f"{side}_{key}"] = min(found[key] for found in rounds)
    norms = [np.array(rounds[0]["norms"]) for rounds in (old, new)]
    return {
        **values,
        "ratio": values["new_ms"] / values["old_ms"],
        # A small case may fit in what the process held before.
        "memory_ratio": values["new_mb"] / values["old_mb"] if values["old_mb"] else None,
        "difference": float(np.abs(norms[1] / norms[0] - 1).max()),
    }


def _checkout(text):
    if not _python(text).exists():
        raise argparse.ArgumentTypeError(f"{_python(text)} is missing; `make test` there makes it")
    return Path(text).resolve()


def _python(checkout):
    return Path(checkout) / ".venv" / "bin" / "python"


def _round(python, checkout, name, case):
    """Milliseconds, extra megabytes and norms of the results, from one child process."""
    command = [str(python), str(HERE / "_against.py"), name, json.dumps(case)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = children.run(command, stdout=PIPE, stderr=PIPE, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{name} with {python} failed: {done.stderr.strip()[-1000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if Path(found["checkout"]) != checkout:
        sys.exit(f"{python} imports the package of {found['checkout']}, not of {checkout}.")
    return found


def main():
    """In the child: measures one case with the package that this interpreter imports."""
    import keras_capsule_poe

    name, case = sys.argv[1], json.loads(sys.argv[2])
    call = importlib.import_module(name).library_call(**case)
    extra_mb = measure.extra_peak_mb(call)
    norms = [float(np.linalg.norm(array)) for array in call()]
    least = measure.times({name: call}, seconds=SECONDS)
    checkout = Path(keras_capsule_poe.__file__).resolve().parents[1]
    found = {"ms": least[name], "mb": extra_mb, "norms": norms, "checkout": str(checkout)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
