"""Minutes, peak memory and share of the floor of each stage of `capspoe train`.

Each stage runs in a process of its own. The floor is the stage's floating-point operations at the
machine's large float32 product rate, measured beside it. Without --full, a few images are used:
"minutes_full" adds the steps that a run on 60,000 images, 1,000 of them held out, would take more,
each of the median time; peak memory is then not that of a full run. Images a second, and shares,
are those of the steps.
Usage: python benchmarks/pipeline.py [--dataset NAME] [--images 4096 | --full] [--json FILE]
"""

import sys
import tempfile
import time
from pathlib import Path

import _children as children
import _measure as measure
import numpy as np

from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import DataError
from keras_capsule_poe.families import get
from keras_capsule_poe.training import Reporter, RunConfig, load_data, train
from keras_capsule_poe.training.plan import plan, product_rate

FAMILY = get("capsules")
FULL = 59_000
COLUMNS = (
    "stage images seconds peak_mb steps step_ms images_per_s gflop floor_share minutes_full".split()
)


class Clock(Reporter):
    """When each step ended."""

    def __init__(self):
        super().__init__(write=lambda line: None)
        self.ends = []

    def step(self, stage, epoch, step, logs):
        self.ends.append(time.perf_counter())

    def step_seconds(self):
        """Median seconds of a step, so without graphs, pictures and held-out images."""
        return float(np.median(np.diff(self.ends)))


def stage_row(config, folder, name):
    """One stage, measured in this process."""
    data = load_data(config)
    stage, images, held_out = config.family.stage(name), len(data.train), len(data.held_out)
    planned = plan(config, data)["stages"].get(name)
    rate, clock = product_rate(), Clock()
    start = time.perf_counter()
    run = train(config, folder, lambda: data, clock, stage=name)
    seconds = time.perf_counter() - start
    row = {"stage": name, "images": images, "seconds": seconds, "peak_mb": measure.peak_mb()}
    if not planned:  # the export, which takes what it takes
        return {**row, "minutes_full": seconds / 60}
    full = stage.cost(RunConfig(config.family), data.image_shape, FULL, held_out)
    if clock.ends:
        batch = config[stage.section].batch_size
        # The last batch of an epoch may be smaller; the floor is taken as if it were not.
        each, work = clock.step_seconds(), planned["gflop"] * batch / (images * planned["epochs"])
        more = full.steps - planned["steps"]
    else:  # the features, once more without start-up
        batch, work = images + held_out, planned["gflop"]
        start = time.perf_counter()
        again = stage.run(run)
        each = time.perf_counter() - start
        run.folder.mark_done(stage, seconds, again)
        more = full.flops / (1e9 * planned["gflop"]) - 1
    return {
        **row,
        "steps": planned["steps"] if clock.ends else None,
        "step_ms": 1e3 * each if clock.ends else None,
        "images_per_s": batch / each,
        "gflop": planned["gflop"],
        "floor_share": work * 1e9 / rate / each,
        "minutes_full": (seconds + more * each) / 60,
    }


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--images", type=int, default=4096, help="training images")
    parser.add_argument("--full", action="store_true", help="all images and default epochs")
    args = parser.parse_args()
    limit = None if args.full else 512 if args.quick else args.images
    config = RunConfig(FAMILY, dataset=args.dataset, limit=limit)
    if not args.full:
        for name, section in config.sections.items():
            if hasattr(section, "epochs"):
                config.set(f"{name}.epochs", 1)
    try:
        children.in_child(load_images, config.dataset)
    except (DataError, RuntimeError) as error:
        sys.exit(f"pipeline: {error}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            children.in_child(stage_row, config, Path(folder) / "model", stage.name)
            for stage in FAMILY.stages
        ]
    sums = {name: sum(row[name] for row in rows) for name in ("seconds", "minutes_full")}
    total = {"stage": "all", "is_full": rows[0]["images"] == FULL, **sums}
    total["peak_mb"] = max(row["peak_mb"] for row in rows)
    measure.report([*rows, total], COLUMNS, args.json, dataset=args.dataset)


if __name__ == "__main__":
    main()
