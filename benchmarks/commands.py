"""Seconds of whole commands on a trained model, each in a process of its own.

`import tensorflow` is what each of those below it waits for, whatever it does. `evaluate`
trains its classifier, too, unless that is in the cache. Least of some rounds, one of `evaluate`.
Usage: python benchmarks/commands.py MODEL_DIR [--rounds 3] [--only NAME ...] [--json FILE]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _children as children
import _measure as measure
from _tiny import CAPSPOE

COLUMNS = "command rounds seconds bar holds".split()
# By name: what follows the program, and the most seconds that it should take, if there is a bar.
COMMANDS = {
    "import tensorflow": (None, None),
    "--help": (["--help"], None),
    "info": (["info"], None),
    "sample": (["sample", "--out", "{out}/grid.png"], 5.5),
    "reconstruct": (["reconstruct", "--out", "{out}/images.png"], None),
    "evaluate": (["evaluate", "--json", "{out}/figures.json"], 300.0),
}
ONCE = ("evaluate",)


def seconds(words, folder, model):
    """How long a command takes.

    Raises:
        SystemExit: If it fails.
    """
    if words is None:
        command = [sys.executable, "-c", "import tensorflow"]
    else:
        command = [*CAPSPOE, *(word.format(out=folder) for word in words)]
        if words[0] != "--help":
            command += ["--model-dir", str(model)]
    begun = time.perf_counter()
    done = children.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    took = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return took


def row(name, rounds, model):
    """A row of `COLUMNS`."""
    words, bar = COMMANDS[name]
    rounds = 1 if name in ONCE else rounds
    with tempfile.TemporaryDirectory() as folder:
        least = min(seconds(words, folder, model) for _ in range(rounds))
    found = {"command": name, "rounds": rounds, "seconds": least}
    return found if bar is None else found | {"bar": bar, "holds": least <= bar}


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("model", type=Path, metavar="MODEL_DIR")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=COMMANDS, metavar="NAME")
    args = parser.parse_args()
    rows = [row(name, 1 if args.quick else args.rounds, args.model) for name in args.only]
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
