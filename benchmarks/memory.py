"""Whether memory grows with the images: peaks of every stage and of `evaluate`, at N and 10 N.

Generated grey images of 28x28 lie in an .npz and are read through a store; 10,000 others to test
with. Each stage runs in a process of its own, at default sizes and over all images, but for
steps of training, of which there are 40. `anon_mb` is the most anonymous memory that the process
held, sampled every 10 ms: what the system cannot take back, so without pages of mapped files,
which it takes back when others need memory; `peak_mb` is the most with these, as the system tells
it. The ratio is of `anon_mb`, at ten times as many images. The last rows compare the median step
of the fastest training there is, of a Boltzmann machine of pixels, from memory and from the store.
It fails if a ratio is above 1.05, `anon_mb` above 2 GB, or the rate from the store below 0.95.
Usage: python benchmarks/memory.py [--family NAME ...] [--quick] [--json FILE]
"""

import contextlib
import functools
import io
import os
import tempfile
import time
from pathlib import Path

import _children as children
import _measure as measure
import numpy as np
import tensorflow as tf
from _tiny import SETTINGS
from pipeline import Clock

from keras_capsule_poe import registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.training import load_data, train
from keras_capsule_poe.training.settings import Schedule

COLUMNS = "family stage images anon_mb peak_mb ratio step_ms step_share".split()
IMAGES, TESTED, STEPS = 20_000, 10_000, 40
QUICK_IMAGES, QUICK_TESTED, QUICK_STEPS = 2_000, 500, 5
RATE_STEPS = 400
# The bars: growth over ten times the images, MB, and the rate from a store as a share.
MOST_RATIO, MOST_MB, LEAST_SHARE = 1.05, 2000, 0.95


def write_images(path, n, tested):
    """An .npz of images of ten classes: a bright bar each, and noise."""
    random = np.random.default_rng(0)

    def images(n):
        labels = random.integers(0, 10, n)
        found = random.integers(0, 60, (n, 28, 28), dtype=np.uint8)
        found[np.arange(n), 4 + 2 * labels] += 150
        found[:, :, :3] //= 2
        return found, labels

    (x_train, y_train), (x_test, y_test) = images(n), images(tested)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def measured(call):
    """What a process of its own needs at most for a call."""
    with measure.Most(lambda: measure.status("RssAnon:")) as anonymous:
        call()
    return {"anon_mb": anonymous.most / measure.MB, "peak_mb": measure.peak_mb()}


def configuration(family, path, quick):
    """A run of one epoch on images of an archive."""
    recipe = "small" if quick and family in ("capsnet", "matrix-capsules") else None
    config = registry.settings(family, recipe, dataset=str(path))
    for setting in SETTINGS[family] if quick else ():
        config.set(*setting.split("="))
    return config


def stage_row(config, folder, store, name, steps):
    """The peak of one stage, which trains for so many steps."""
    Schedule.over = lambda self, images: (1, steps)

    def run():
        load = functools.partial(load_data, config, store=store)
        train(registry.untrained(config), folder, load, Clock(), stage=name)

    return {"stage": name, **measured(run)}


def evaluate_row(family, folder, store):
    """The peak of `capspoe evaluate`, with all controls but the one whose time is a choice."""
    from keras_capsule_poe.cli.main import main

    os.environ["CAPSPOE_CACHE"] = str(folder / "cache")
    words = ["evaluate", "--model-dir", str(folder), "--store", str(store)]
    words += ["--json", str(folder / "figures.json")]
    if not registry.settings_class(family).LABELLED:
        words += ["--baselines", "trained", "--vae-seconds", "0"]
    with contextlib.redirect_stdout(io.StringIO()):
        return {"stage": "evaluate", **measured(lambda: main(words, standalone_mode=False))}


def family_rows(family, folder, sizes, tested, steps, quick):
    """A row for each stage and number of images."""
    rows = {}
    for images in sizes:
        path, store, model = (folder / f"{images}{end}" for end in (".npz", "-stores", "-model"))
        model = model / family
        config = configuration(family, path, quick)
        jobs = [(stage_row, config, model, store, s, steps) for s in config.stages]
        for job in (*jobs, (evaluate_row, family, model, store)):
            row = {"family": family, "images": images, **children.in_child(*job)}
            first = rows.setdefault(row["stage"], [])
            if first:
                row["ratio"] = row["anon_mb"] / first[0]["anon_mb"]
            first.append(row)
            print(f"{family} {row['stage']} {images}: {row['anon_mb']:.0f} MB", flush=True)
    return [row for pair in rows.values() for row in pair]


def step_ms(path, store, steps):
    """Milliseconds of the median step of a machine of pixels."""
    config = registry.settings("rbm", dataset=str(path))
    Schedule.over = lambda self, images: (1, steps)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        data = load_data(config, store=store)
        train(registry.untrained(config), Path(folder) / "model", lambda: data, clock, stage="rbm")
    return 1e3 * clock.step_seconds()


def rate_rows(path, store, images, steps, rounds=3):
    """The step from memory and from the store, in turn, each the least of several processes."""
    least = {}
    for _ in range(rounds):
        for name, place in (("memory", None), ("store", store)):
            ms = children.in_child(step_ms, path, place, steps)
            least[name] = min(ms, least.get(name, ms))
    rows = [{"family": "rbm", "stage": f"from {n}", "images": images, "step_ms": least[n]}
            for n in least]  # fmt: skip
    rows[1]["step_share"] = least["memory"] / least["store"]
    return rows


def missed(rows):
    """What the bars refuse, a line each.

    Examples:

    >>> missed([{"family": "rbm", "stage": "rbm", "images": 9, "anon_mb": 50.0, "ratio": 1.5}])
    ['rbm rbm: 1.5 times the memory for ten times the images, more than 1.05']
    """
    found = []
    for row in rows:
        what = f"{row['family']} {row['stage']}"
        if row.get("ratio", 0) > MOST_RATIO:
            found.append(
                f"{what}: {row['ratio']:.3g} times the memory for ten times the images, more than "
                f"{MOST_RATIO}"
            )
        if row.get("anon_mb", 0) > MOST_MB:
            found.append(f"{what}: {row['anon_mb']:.0f} MB, more than {MOST_MB}")
        if row.get("step_share", 1) < LEAST_SHARE:
            found.append(
                f"{what}: {row['step_share']:.3g} of the rate from memory, less than {LEAST_SHARE}"
            )
    return found


def main():
    # That a function was traced for each of many models, as they should be.
    tf.get_logger().setLevel("ERROR")
    parser, names = measure.parser(__doc__), registry.names()
    parser.add_argument("--family", nargs="+", choices=names, default=names, metavar="NAME")
    args = parser.parse_args()
    first, tested, steps = IMAGES, TESTED, STEPS
    if args.quick:
        first, tested, steps = QUICK_IMAGES, QUICK_TESTED, QUICK_STEPS
    sizes, rows = (first, 10 * first), []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for images in sizes:
            path, store = folder / f"{images}.npz", folder / f"{images}-stores"
            children.in_child(write_images, path, images, tested)
            begun = time.perf_counter()
            row = children.in_child(measured_store, path, store)
            seconds = time.perf_counter() - begun
            rows.append({"family": "-", "stage": "store", "images": images, **row})
            print(f"store of {images}: {row['anon_mb']:.0f} MB, {seconds:.1f} s", flush=True)
        rows[1]["ratio"] = rows[1]["anon_mb"] / rows[0]["anon_mb"]
        for family in args.family:
            rows += family_rows(family, folder, sizes, tested, steps, args.quick)
        rows += rate_rows(path, store, images, RATE_STEPS // (10 if args.quick else 1))
    measure.report(rows, COLUMNS, args.json, quick=args.quick)
    # Of few images the parts that do not grow with them hide what does.
    if lines := missed(rows) if not args.quick else ():
        raise SystemExit("\n".join(lines))


def measured_store(path, store):
    """The peak of writing a store."""
    return measured(lambda: load_images(path, store=store))


if __name__ == "__main__":
    main()
