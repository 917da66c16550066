"""Kills one of several workers that train together, at random moments, and lets all go on.

A tiny run of each family, on several processes of this machine. At a moment drawn evenly over the
time that it takes undisturbed one of them, the chief or another, gets SIGKILL, SIGTERM or SIGINT;
the others must end by themselves, with exit code 1 and one line, half a minute later at most where
they wait for one that has not come. The same command on all of them goes on until the next moment,
and at last to its end. Then every number that it left is compared bit by bit with those of workers
that nothing disturbed. `stopped_s` is the longest time that the others took to end; `failed` counts
starts that ended in any other way.
Usage: python benchmarks/kill_workers.py [--families rbm ...] [--moments 20] [--workers 2]
           [--seed 0] [--epochs 20] [--json FILE]
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _children as children
import _measure as measure
import _tiny as tiny
import kill

from keras_capsule_poe import registry

KINDS = ("KILL", "TERM", "INT")
COLUMNS = "family workers moments chief failed different leftovers stopped_s alone_s".split()
# How long workers wait for one that does not come, and until when all must have ended, in seconds.
PATIENCE, SOON, MOST = 30, 90, 4


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--families", nargs="+", choices=tiny.SETTINGS, default=list(tiny.SETTINGS))
    parser.add_argument("--moments", type=int, default=20, help="kills, over all families")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20, help="of each stage")
    args = parser.parse_args()
    rows, problems = [], []
    for family, moments in tiny.shares(args.moments, args.families).items():
        draw = random.Random(f"{args.seed} {family}")
        with tempfile.TemporaryDirectory() as folder:
            crew = Crew(family, args.workers, args.epochs)
            row, found = killed(crew, moments, draw, Path(folder))
        rows.append(row)
        problems += [f"{family}: {problem}" for problem in found]
        print(measure.cell(family), {name: measure.cell(row[name]) for name in COLUMNS}, flush=True)
    measure.report(rows, COLUMNS, args.json, problems=problems)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


class Crew:
    """So many processes that train a family together.

    Args:
        family: str.
        workers, epochs: int.
    """

    def __init__(self, family, workers, epochs):
        self.family, self.workers, self.epochs = family, workers, epochs

    def start(self, folder, stack):
        """Starts all of them: a list of processes and what each writes to, for an `ExitStack`."""
        addresses = [f"127.0.0.1:{port}" for port in free_ports(self.workers)]
        command = [*tiny.CAPSPOE, *tiny.train_options(self.family, folder, self.epochs)]
        found = []
        for index in range(self.workers):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            said = stack.enter_context(tempfile.TemporaryFile("w+"))
            more = {"TF_CONFIG": json.dumps(task), "CAPSPOE_PATIENCE": str(PATIENCE)}
            options = {"env": {**os.environ, **more}}
            process = children.start(command, stdout=said, stderr=said, **options)
            stack.callback(process.wait)
            stack.callback(process.kill)
            found.append((process, said))
        return found

    def finish(self, folder):
        """Trains to the end.

        Raises:
            RuntimeError: If one fails, with its last line.
        """
        with contextlib.ExitStack() as stack:
            for number, (process, said) in enumerate(self.start(folder, stack)):
                if code := process.wait():
                    last = kill.last_line(text(said))
                    raise RuntimeError(f"worker {number}: exit {code}: {last}")

    def disturbed(self, folder, kind, moment, victim):
        """One start of which one worker is ended at a moment.

        Returns:
            Seconds until the others had ended, and what went wrong in words or None; None where
            the training was done before.
        """
        with contextlib.ExitStack() as stack:
            workers = self.start(folder, stack)
            time.sleep(moment)
            before = [process.poll() for process, _ in workers]
            # By itself one ends when it has nothing more to do.
            if not any(before):
                workers[victim][0].send_signal(*kill.KINDS[kind])
            began = time.monotonic()
            codes = [ended(process) for process, _ in workers]
            seconds = time.monotonic() - began
            texts = [text(said) for _, said in workers]
        if set(codes) == {0}:
            return None
        why = "undisturbed" if any(before) else f"{kind} of {victim}"
        # Before the last stage nobody has done all that it has to do.
        done = {0} if kill.stage_of(folder) in (self.last_stage, "between") else set()
        for number, code in enumerate(codes):
            wanted = done | (kill.CODES[kind] if number == victim else {1})
            if code not in ({0} if any(before) else wanted):
                what = "did not end" if code is None else f"exit {code}"
                return seconds, f"{why}: worker {number}: {what}: {kill.last_line(texts[number])}"
            if number != victim and code and not ends_well(texts[number]):
                said = texts[number][-300:]
                return seconds, f"{why}: worker {number} did not end in one line: {said}"
        return seconds, None

    @property
    def last_stage(self):
        return list(registry.settings_class(self.family).STAGES)[-1]


def killed(crew, moments, draw, folder):
    """Row of a family, and problems in words; see `kill.killed`."""
    began = time.monotonic()
    crew.finish(folder / "alone")
    alone = time.monotonic() - began
    wanted = tiny.state(folder / "alone")
    row = dict.fromkeys(("chief", "failed", "different", "leftovers"), 0)
    row |= {"family": crew.family, "workers": crew.workers, "moments": moments}
    row |= {"stopped_s": 0.0, "alone_s": alone}
    problems, left, runs = [], moments, 0
    while left:
        path = folder / f"run-{runs}"
        runs += 1
        for _ in range(min(left, draw.randint(1, MOST))):
            kind, moment = draw.choice(KINDS), draw.uniform(0, alone)
            victim = draw.randrange(crew.workers)
            found = crew.disturbed(path, kind, moment, victim)
            if found is None:
                break
            seconds, problem = found
            left -= 1
            row["chief"] += victim == 0
            row["stopped_s"] = max(row["stopped_s"], seconds)
            if problem:
                row["failed"] += 1
                problems.append(f"{moment:.1f} s after the start: {problem}")
        problems += kill.at_the_end(crew.finish, path, wanted, row)
    return row, problems


def ended(process):
    """The exit code of a process; None if it does not end, and is killed."""
    try:
        return process.wait(SOON)
    except subprocess.TimeoutExpired:
        process.kill()
        return None


def ends_well(text):
    """Whether the last line, and no other, tells of an error.

    Examples:

    >>> ends_well("epoch 1\\nError: gone."), ends_well("Traceback\\nError: gone."), ends_well("")
    (True, False, False)
    """
    *before, last = text.strip().splitlines() or [""]
    return (
        last.startswith("Error: ")
        and "Traceback" not in text
        and not any(line.startswith("Error") for line in before)
    )


def text(file):
    file.seek(0)
    return file.read()


def free_ports(number):
    """So many ports of this machine that nothing listens at."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


if __name__ == "__main__":
    main()
