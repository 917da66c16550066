"""What becomes of odd input: `right`, `refused` or `otherwise`, each case within a minute.

`refused` is an error of this package in one line that says what it received or which file it is;
`right` a result that the case finds right. Everything else is `otherwise`: an exception for
programmers, a wrong result, or no end within a minute.
"""

import collections
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

import _measure as measure
from click.testing import CliRunner

from keras_capsule_poe.cli.main import main as capspoe
from keras_capsule_poe.errors import CapspoeError

COLUMNS = "kind cases right refused otherwise".split()
SECONDS = 60


class Wrong(Exception):
    """What came out is not right."""


def try_command(model_dir, arguments):
    """Runs a command that cannot succeed: it must say so in one line."""
    command = [*map(str, arguments), "--model-dir", str(model_dir)]
    result = CliRunner().invoke(capspoe, command)
    lines = result.output.strip().splitlines()
    if result.exit_code in (1, 2) and "Error: " in lines[-1] and "--debug" not in lines[-1]:
        raise CapspoeError(lines[-1])
    raise Wrong(f"exit {result.exit_code}: {lines[-1:]}")


def verdict(call):
    """`"right"`, `"refused"`, or `"otherwise"`; and what was said."""
    try:
        with time_limit():
            call()
    except CapspoeError as error:
        said = str(error)
        return "refused" if said and "\n" not in said else "otherwise", said
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "otherwise", f"{type(error).__name__}: {error}"
    return "right", ""


@contextlib.contextmanager
def time_limit():
    """Raises TimeoutError after a minute."""

    def stop(*_):
        raise TimeoutError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main(description, cases, model_help=None):
    """Judges triples of a kind, a name and a function, which is right if it ends.

    Args:
        description: Docstring of the script.
        cases: Function of an empty folder and the arguments that yields them.
        model_help: Help of the option `--model-dir`, or None for none.
    """
    parser = measure.parser(description)
    if model_help:
        parser.add_argument("--model-dir", type=Path, help=model_help)
    args = parser.parse_args()
    counts, problems = collections.defaultdict(collections.Counter), []
    with tempfile.TemporaryDirectory() as folder:
        for kind, name, call in cases(Path(folder), args):
            found, said = verdict(call)
            counts[kind].update(("cases", found))
            if found == "otherwise":
                problems.append(f"{kind}: {name!r}: {' '.join(said.split())[:300]}")
    rows = [{"kind": kind, **counted} for kind, counted in counts.items()]
    rows.append({"kind": "all", **sum(counts.values(), collections.Counter())})
    rows = [{**dict.fromkeys(COLUMNS, 0), **row} for row in rows]
    measure.report(rows, COLUMNS, args.json, problems=problems)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)
