"""Kills one of several workers that train together, at random moments, and lets all go on.

A tiny run of each family, on several processes of this machine. At a moment drawn evenly over the
time that it takes undisturbed one of them, the chief or another, gets SIGKILL, SIGTERM or SIGINT;
the others must end by themselves, with exit code 1 and one line. The same command on all of them
goes on until the next moment, and at last to its end. Then every number that it left is compared
bit by bit with those of workers that nothing disturbed. `stopped_s` is the longest time that the
others took to end; `failed` counts starts that ended in any other way.
Usage: python benchmarks/kill_workers.py [--families rbm ...] [--moments 20] [--workers 2]
           [--seed 0] [--epochs 20] [--json FILE]
"""

import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import time
from pathlib import Path

import _children as children
import _measure as measure
import _tiny as tiny
import kill

KINDS = ("KILL", "TERM", "INT")
COLUMNS = "family workers moments chief failed different leftovers stopped_s alone_s".split()
# Workers wait so long for one that does not come, in seconds.
PATIENCE, MOST = 30, 4


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
                if code := ended(process):
                    raise RuntimeError(f"worker {number}: exit {code}: {last_line(said)}")

    def disturbed(self, folder, kind, moment, victim):
        """One start of which one worker is ended at a moment.

        Returns:
            Seconds until the others had ended, and what went wrong in words or None; None where
            the training was done before.
        """
        with contextlib.ExitStack() as stack:
            workers = self.start(folder, stack)
            time.sleep(moment)
            if all(process.poll() == 0 for process, _ in workers):
                return None
            workers[victim][0].send_signal(*kill.KINDS[kind])
            began = time.monotonic()
            codes = [ended(process) for process, _ in workers]
            seconds = time.monotonic() - began
            if codes[victim] == 0:
                # It had nothing more to do than to end.
                return None
            for number, ((_, said), code) in enumerate(zip(workers, codes)):
                wanted = kill.CODES[kind] if number == victim else {0, 1}
                if code not in wanted:
                    what = "did not end" if code is None else f"exit {code}"
                    why = f"{kind} of {victim}, then worker {number}: {what}"
                    return seconds, f"{why}: {last_line(said)}"
                if number != victim and code and not ends_well(said):
                    return seconds, f"worker {number} did not end in one line: {text(said)}"
        return seconds, None


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
        try:
            crew.finish(path)
        except RuntimeError as error:
            row["failed"] += 1
            problems.append(str(error))
            continue
        differing, over = tiny.differing(wanted, path), tiny.leftovers(path)
        row["different"] += bool(differing)
        row["leftovers"] += len(over)
        problems += [f"{path.name} differs in {name}" for name in differing]
        problems += [f"left behind: {name}" for name in over]
    return row, problems


def ended(process):
    """The exit code of a process; None if it does not end, and is killed."""
    try:
        return process.wait(10 * PATIENCE)
    except kill.subprocess.TimeoutExpired:
        process.kill()
        return None


def ends_well(file):
    """Whether the last line, and no other, tells of an error."""
    *before, last = text(file).strip().splitlines()
    return last.startswith("Error: ") and not any("rror" in line for line in before)


def text(file):
    file.seek(0)
    return file.read()


def last_line(file):
    return kill.last_line(text(file))


def free_ports(number):
    """So many ports of this machine that nothing listens at."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


if __name__ == "__main__":
    main()
