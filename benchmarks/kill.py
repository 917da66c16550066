"""Kills training at random moments, and lets it go on: what is lost, and is the end the same?

A tiny run of each family is killed at moments drawn evenly over the time that it takes alone, with
SIGKILL, SIGTERM, SIGINT, or two SIGINT in a row; the same command goes on until the next moment,
and at last to its end. Then every number that it left is compared bit by bit with those of a run
that nothing disturbed. `lost_s` is the longest time between a kill and what was last saved before
it, or the start where that is later, imports included; checkpoints come twice a second here. A
start that ends in any other way than with the signal is `failed`.
Usage: python benchmarks/kill.py [--families capsules rbm] [--moments 100] [--seed 0] [--json FILE]
"""

import collections
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import _children as children
import _measure as measure
import _tiny as tiny

KINDS = {
    "KILL": (signal.SIGKILL,),
    "TERM": (signal.SIGTERM,),
    "INT": (signal.SIGINT,),
    "INT twice": (signal.SIGINT, signal.SIGINT),
}
# What training gives back when a signal ends it.
CODES = {"KILL": {-9}, "TERM": {-15}, "INT": {130, -2}, "INT twice": {130, -2, 1}}
COLUMNS = "family moments runs failed different leftovers lost_s alone_s stages".split()
PATIENCE, MOST = 600, 4


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--families", nargs="+", choices=tiny.SETTINGS, default=list(tiny.SETTINGS))
    parser.add_argument("--moments", type=int, default=100, help="kills, over all families")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20, help="of each stage")
    args = parser.parse_args()
    rows, problems = [], []
    for family, moments in tiny.shares(args.moments, args.families).items():
        draw = random.Random(f"{args.seed} {family}")
        with tempfile.TemporaryDirectory() as folder:
            row, found = killed(family, moments, draw, Path(folder), args.epochs)
        rows.append(row)
        problems += [f"{family}: {problem}" for problem in found]
        # All of it takes long: what is known so far.
        print(measure.cell(family), {name: measure.cell(row[name]) for name in COLUMNS}, flush=True)
    measure.report(rows, COLUMNS, args.json, problems=problems)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def killed(family, moments, draw, folder, epochs):
    """Row of a family, and problems in words.

    Args:
        family: str.
        moments: int, how many kills.
        draw: `random.Random`.
        folder: Path to work in.
        epochs: int, of each stage.
    """
    began = time.monotonic()
    finish(family, folder / "alone", epochs)
    alone = time.monotonic() - began
    wanted = tiny.state(folder / "alone")
    row = dict.fromkeys(("failed", "different", "leftovers"), 0)
    row |= {"family": family, "moments": moments, "runs": 0, "lost_s": 0.0, "alone_s": alone}
    problems, stages, left = [], collections.Counter(), moments
    while left:
        path = folder / f"run-{row['runs']}"
        row["runs"] += 1
        # A few kills each: most of the later ones would hit what is left to do, the export.
        for _ in range(min(left, draw.randint(1, MOST))):
            kind, moment = draw.choice(list(KINDS)), draw.uniform(0, alone)
            ended = start_and_kill(family, path, epochs, kind, moment, draw)
            if ended is None:  # it was done before its moment
                break
            lost, stage, problem = ended
            left -= 1
            stages[stage] += 1
            row["lost_s"] = max(row["lost_s"], lost)
            if problem:
                row["failed"] += 1
                problems.append(f"SIG{kind} after {moment:.1f} s: {problem}")
        problems += at_the_end(partial(finish, family, epochs=epochs), path, wanted, row)
    return {**row, "stages": " ".join(f"{name}:{n}" for name, n in stages.items())}, problems


def at_the_end(finish, folder, wanted, row):
    """What is wrong with a run that is finished now, in words; counted in its row.

    Args:
        finish: Function of the folder, which raises a `RuntimeError` if it fails.
        folder: Path of the run.
        wanted: Of `tiny.state`.
        row: dict, of which `failed`, `different` and `leftovers` are added to.
    """
    try:
        finish(folder)
    except RuntimeError as error:
        row["failed"] += 1
        return [str(error)]
    differing, over = tiny.differing(wanted, folder), tiny.leftovers(folder)
    row["different"] += bool(differing)
    row["leftovers"] += len(over)
    problems = [f"{folder.name} differs in {name}" for name in differing]
    return problems + [f"left behind: {name}" for name in over]


def finish(family, folder, epochs):
    """Trains to the end.

    Raises:
        RuntimeError: If that fails, with its last line.
    """
    command = [*tiny.CAPSPOE, *tiny.train_options(family, folder, epochs)]
    done = children.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {last_line(done.stdout)}")


def start_and_kill(family, folder, epochs, kind, moment, draw):
    """A start that is killed at its moment.

    Args:
        family, folder, epochs: See `killed`.
        kind: str, of `KINDS`.
        moment: float, seconds after the start.
        draw: `random.Random`.

    Returns:
        Seconds of work lost, the stage, and what went wrong in words or None; None where the
        training was done before.
    """
    command = [*tiny.CAPSPOE, *tiny.train_options(family, folder, epochs)]
    with tempfile.TemporaryFile("w+") as output:
        with children.start(command, stdout=output, stderr=subprocess.STDOUT) as process:
            began, lost, codes = time.time(), 0.0, {0}
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                lost = time.time() - last_saved(folder, began)
                codes |= CODES[kind]
                for number in KINDS[kind]:
                    process.send_signal(number)
                    time.sleep(draw.uniform(0.01, 0.3) if len(KINDS[kind]) > 1 else 0)
                process.wait(PATIENCE)
        output.seek(0)
        said = last_line(output.read())
    if process.returncode == 0:
        return None
    problem = None if process.returncode in codes else f"exit {process.returncode}: {said}"
    return lost, stage_of(folder), problem


def last_saved(folder, began):
    """When something was saved last that a later start goes on from; at first, its own start."""
    saved = [*folder.glob("*/checkpoints/step-*/state.json"), *folder.glob("*/done.json")]
    return max([began, *(modified(path) for path in saved)])


def modified(path):
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # an older checkpoint, just removed
        return 0.0


def stage_of(folder):
    """The stage that was being worked on."""
    begun = [path for path in folder.glob("*/") if not path.name.isdigit()]
    waiting = [path for path in begun if path.name != "pictures" and not is_done(path)]
    return waiting[0].name if waiting else "between"


def is_done(folder):
    return (folder / "done.json").exists()


def last_line(text):
    return (text.strip().splitlines() or [""])[-1]


if __name__ == "__main__":
    main()
