"""Lets the disk fill up at any moment of a training: is it one line, and is nothing lost?

A tiny run of each family trains into a file system of its own whose room ends at a share of what
the run takes at most, the shares evenly spread. A start must then end in one line that says so.
When there is room, the same command goes on to the end: no stage that was done is done again
(`redone`), and every number is compared bit by bit with those of a run that had room (`different`).
The file system is a tmpfs, which root may mount, on Linux.
Usage: python benchmarks/full_disk.py [--families capsules rbm] [--moments 100] [--json FILE]
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import _children as children
import _measure as measure
import _tiny as tiny

COLUMNS = "family moments full failed redone different leftovers most_mb".split()
SAID = "No space left on device"
ROOM = 500_000_000


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--families", nargs="+", choices=tiny.SETTINGS, default=list(tiny.SETTINGS))
    parser.add_argument("--moments", type=int, default=100, help="shares, over all families")
    parser.add_argument("--epochs", type=int, default=3, help="of each stage")
    args = parser.parse_args()
    rows, problems = [], []
    for family, moments in tiny.shares(args.moments, args.families).items():
        row, found = filled(family, moments, args.epochs)
        rows.append(row)
        problems += [f"{family}: {problem}" for problem in found]
        print({name: measure.cell(row[name]) for name in COLUMNS}, flush=True)
    measure.report(rows, COLUMNS, args.json, problems=problems)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


@contextlib.contextmanager
def file_system(size):
    """A folder with a file system of so many bytes.

    Raises:
        SystemExit: If none may be mounted.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ["-o", f"size={size}"]
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"No tmpfs can be mounted: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def make_room(folder, size):
    """The file system of a folder has so many bytes from here on."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def filled(family, moments, epochs):
    """Row of a family, and problems in words."""
    with file_system(ROOM) as folder:
        with measure.Most(lambda: shutil.disk_usage(folder).used, 0.005) as used:
            code, said = start(family, folder / "run", epochs)
        if code:
            raise SystemExit(f"{family} fails where there is room: {said}")
        wanted = tiny.state(folder / "run")
    row = dict.fromkeys(COLUMNS, 0) | {"family": family, "moments": moments}
    row["most_mb"], problems = used.most / measure.MB, []
    for i in range(moments):
        size = int(used.most * (i + 0.5) / moments)
        for kind, problem in filled_once(family, size, epochs, wanted):
            row[kind] += 1
            if problem:
                problems.append(f"room for {size:,} bytes: {problem}")
    return row, problems


def filled_once(family, size, epochs, wanted):
    """What happens where there are so many bytes: columns, each with a problem in words or None."""
    with file_system(size) as folder:
        run, found = folder / "run", []
        code, said = start(family, run, epochs)
        if code:
            found.append(("full", None))
            lines = said.strip().splitlines() or [""]
            if code != 1 or SAID not in lines[-1] or "Traceback" in said:
                found.append(("failed", f"exit {code}: {lines[-1]}"))
        done = {path: path.stat().st_mtime_ns for path in run.glob("*/done.json")}
        make_room(folder, ROOM)
        code, said = start(family, run, epochs)
        if code:
            found.append(("failed", f"with room again, exit {code}: {said.strip()[-200:]}"))
            return found
        again = [path.parent.name for path, at in done.items() if path.stat().st_mtime_ns != at]
        found += [("redone", f"{stage} was done again") for stage in again]
        found += [("different", f"differs in {name}") for name in tiny.differing(wanted, run)]
        return found + [("leftovers", f"left behind: {name}") for name in tiny.leftovers(run)]


def start(family, folder, epochs):
    """Exit code and output of a training."""
    command = [*tiny.CAPSPOE, *tiny.train_options(family, folder, epochs)]
    done = children.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


if __name__ == "__main__":
    main()
