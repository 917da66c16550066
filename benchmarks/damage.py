"""Damages each file of a trained folder: is it found, or harmless?

Each file of a tiny finished run is cut, emptied, zeroed, flipped in one bit, deleted, or taken from
another run; then the commands that read it are called. `harmless`: they give what they gave
before. `named`: they refuse in one line that names the file or its stage, and what mends it.
`otherwise`: anything else; above all another result, without a word. With --half, the run stands in
the middle of its last training, with checkpoints and caches, and the command that goes on is
called to the end. SavedModels are read by TensorFlow, so their own SHA256SUMS are asked as well.
At the end it says what finding it costs: megabytes a second whose sum is taken.
Usage: python benchmarks/damage.py [--families capsules rbm] [--half] [--seed 0] [--json FILE]
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _children as children
import _measure as measure
import _tiny as tiny
from click.testing import CliRunner

from keras_capsule_poe.cli.main import main as capspoe
from keras_capsule_poe.io.records import digest

DAMAGES = ("cut", "empty", "zeroed", "flipped", "deleted", "foreign")
COLUMNS = "family files damages harmless named otherwise".split()
# A deleted file may be made again instead, which is harmless; pictures are for people.
UNREAD = (".png", "history.json")


def files_of(folder):
    """The files of a run that a program reads, relative to its folder."""
    paths = sorted(path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file())
    return [path for path in paths if path.name != ".lock" and not str(path).endswith(UNREAD)]


def damage(path, how, other=None, place=None):
    """Damages a file.

    Args:
        path: Path of it.
        how: str, of `DAMAGES`.
        other: Path of the file of its name in another run.
        place: int, of the byte that is flipped; the one in the middle.

    Returns:
        bool, whether the file is another one now.
    """
    content = path.read_bytes()
    if how == "deleted":
        path.unlink()
        return True
    if how == "flipped":
        changed = bytearray(content)
        changed[len(content) // 2 if place is None else place] ^= 4
    elif how == "foreign":
        if not other.exists():
            return False
        changed = other.read_bytes()
    else:
        cut = content[: len(content) // 2]
        changed = {"cut": cut, "empty": b"", "zeroed": bytes(len(content))}[how]
    path.write_bytes(changed)
    return bytes(changed) != content


def judged(family, folder, wanted, name):
    """`"harmless"`, `"named"` or `"otherwise"`, and what was said of a damaged folder.

    Args:
        family: str.
        folder: Path of the damaged run.
        wanted: What `outcome` gave of the whole one.
        name: Path of the damaged file, relative to the folder.
    """
    try:
        found, said = children.in_child(outcome, family, folder)
    except RuntimeError as error:
        return "otherwise", str(error)
    if found == wanted:
        return "harmless", said
    # A SavedModel's files are checked by its own sums, or do not load.
    if name.parts[0].isdigit() and not sums_hold(folder / name.parts[0]):
        return "named", "SHA256SUMS"
    words = (str(name), name.parts[0], "run.json")
    is_line = said.startswith("Error: ") and "--debug shows where" not in said
    if found is None and is_line and any(word in said for word in words):
        return "named", said
    return "otherwise", said


def outcome(family, folder):
    """What the commands give of a run: numbers to compare, None where one refused; its last line.

    Args:
        family, folder: See `judged`.
    """
    picture = folder / "out.png"
    for arguments in (
        tiny.train_options(family, folder, limit=60),
        ("reconstruct", "--model-dir", folder, "--out", picture),
    ):
        done = CliRunner().invoke(capspoe, [str(word) for word in arguments])
        last = (done.output.strip().splitlines() or [""])[-1]
        if done.exit_code:
            return None, last if last.startswith("Error: ") else f"exit {done.exit_code}: {last}"
    sums = {"sums": all(sums_hold(path) for path in folder.glob("[0-9]*"))}
    # A model that is gone is written again, and its SavedModel as the next version.
    found = {name: value for name, value in tiny.state(folder).items() if name != "versions"}
    return {**found, "out.png": picture.read_bytes(), **sums}, last


def sums_hold(folder):
    """Whether the files of a SavedModel are those that its SHA256SUMS names."""
    check = ["sha256sum", "--check", "--strict", "--status", "SHA256SUMS"]
    return not subprocess.run(check, cwd=folder, stderr=subprocess.DEVNULL).returncode


def trained(family, folder, half, seed):
    """Trains a run, or its first half."""
    options = tiny.train_options(family, folder, seed=seed, limit=60)
    words = [*tiny.CAPSPOE, *options, "--checkpoint-seconds", "0.001"]
    last = tiny.SETTINGS[family][-1].partition(".")[0]
    with children.start(words, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if half and len(list(folder.glob(f"{last}/checkpoints/step-*/state.json"))) > 1:
                process.kill()
            time.sleep(0.01)


def family_row(family, half, draw, root):
    """Row of a family, and problems in words."""
    whole, other = root / "whole", root / "other"
    for folder, seed in ((whole, 3), (other, 4)):
        trained(family, folder, half, seed)
    reference = root / "reference"
    shutil.copytree(whole, reference)
    wanted, said = children.in_child(outcome, family, reference)
    if wanted is None:
        sys.exit(f"{family}: {said}")
    row = {"family": family, **dict.fromkeys(COLUMNS[1:], 0)}
    row["files"], problems = len(files_of(whole)), []
    for name in files_of(whole):
        for how in DAMAGES:
            folder = root / "damaged"
            shutil.copytree(whole, folder)
            place = draw.randrange(max(1, os.path.getsize(whole / name)))
            if damage(folder / name, how, other / name, place):
                found, said = judged(family, folder, wanted, name)
                row["damages"] += 1
                row[found] += 1
                if found == "otherwise":
                    problems.append(f"{family}: {name} {how}: {said}")
            shutil.rmtree(folder)
    return row, problems


def megabytes_per_second(megabytes=128):
    """How fast the sum of a file is taken that the system has in memory."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(megabytes * 10**6))
        file.flush()
        began = time.perf_counter()
        digest(file.name)
        return megabytes / (time.perf_counter() - began)


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--families", nargs="+", choices=tiny.SETTINGS, default=["capsules"])
    parser.add_argument("--half", action="store_true", help="a run that is not finished")
    parser.add_argument("--seed", type=int, default=0, help="of the bits that are flipped")
    args = parser.parse_args()
    rows, problems = [], []
    for family in args.families:
        with tempfile.TemporaryDirectory() as folder:
            draw = random.Random(f"{args.seed} {family}")
            row, found = family_row(family, args.half, draw, Path(folder))
        rows.append(row)
        problems += found
    rate = megabytes_per_second()
    measure.report(rows, COLUMNS, args.json, problems=problems, digest_mb_per_s=rate)
    print(f"digest: {rate:.0f} MB/s")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
