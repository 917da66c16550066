"""Minutes, peak memory and share of the floor of each stage of `capspoe train`.

Each stage runs in a process of its own. The floor is the stage's floating-point operations at the
machine's large float32 product rate, measured beside it. Without --full, a few images are used:
"minutes_full" adds the steps that 60,000 images would take more, each of the median time; peak
memory is then not that of a full run. Images a second, and shares, are those of the steps.
Usage: python benchmarks/pipeline.py [--dataset fashion_mnist] [--images 4096 | --full] [--json FILE]
"""

import sys
import tempfile
import time
from pathlib import Path

import _measure as measure
import numpy as np

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.training import STAGES, Reporter, RunConfig, parts, train
from keras_capsule_poe.training.config import schedule
from keras_capsule_poe.training.plan import plan, product_rate

FULL = 60_000
COLUMNS = (
    "stage images seconds peak_mb steps step_ms images_per_s gflop floor_share minutes_full".split()
)


class _Clock(Reporter):
    """When each step ended."""

    def __init__(self):
        super().__init__(write=lambda line: None)
        self.ends = []

    def step(self, stage, epoch, step, logs):
        self.ends.append(time.perf_counter())

    def step_seconds(self):
        """Median seconds of a step, so without graphs, pictures and held-out images."""
        return float(np.median(np.diff(self.ends)))


def stage_row(config, folder, stage):
    """One stage, measured in this process."""
    data = load_images(config.dataset, limit=config.limit)
    images = len(data.train)
    planned = plan(config, data)["stages"].get(stage)
    rate, clock = product_rate(), _Clock()
    start = time.perf_counter()
    run = train(config, folder, lambda: data, clock, stage=stage)
    seconds = time.perf_counter() - start
    row = {"stage": stage, "images": images, "seconds": seconds, "peak_mb": measure.peak_mb()}
    if not planned:  # the export, which takes what it takes
        return {**row, "minutes_full": seconds / 60}
    if clock.ends:
        section = getattr(RunConfig(), stage)
        epochs, steps = schedule(section, FULL)
        # The last batch of an epoch may be smaller; the floor is taken as if it were not.
        work = section.batch_size / images * planned["gflop"] / planned["epochs"]
        each, more = clock.step_seconds(), epochs * steps - planned["steps"]
    else:  # the features, once more without start-up
        section, work, more = None, planned["gflop"], FULL / images - 1
        model = parts.load_part(run, "autoencoder")
        start = time.perf_counter()
        parts.write_features(Path(folder) / "again.npy", model, data.train.images)
        each = time.perf_counter() - start
    return {
        **row,
        "steps": planned["steps"] if section else None,
        "step_ms": 1e3 * each if section else None,
        "images_per_s": (section.batch_size if section else images) / each,
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
    config = RunConfig(dataset=args.dataset, limit=limit)
    if not args.full:
        for section in (config.autoencoder, config.encoder, config.decoder):
            section.epochs = 1
    try:
        measure.in_child(load_images, config.dataset)
    except (DataError, RuntimeError) as error:
        sys.exit(f"pipeline: {error}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure.in_child(stage_row, config, Path(folder) / "model", stage) for stage in STAGES
        ]
    sums = {name: sum(row[name] for row in rows) for name in ("seconds", "minutes_full")}
    total = {"stage": "all", "is_full": rows[0]["images"] == FULL, **sums}
    total["peak_mb"] = max(row["peak_mb"] for row in rows)
    measure.report([*rows, total], COLUMNS, args.json, dataset=args.dataset)


if __name__ == "__main__":
    main()
