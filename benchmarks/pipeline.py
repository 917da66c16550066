"""Minutes and peak memory of each stage of `capspoe train`.

Each stage runs in a process of its own. Without --full, a few images are used: "minutes_full" adds
the further steps of a run on 60,000 images, 1,000 of them held out, each of the median time. Peak
memory is then not that of a full run.
Usage: python benchmarks/pipeline.py [--dataset NAME] [--images 4096 | --full] [--json FILE]
"""

import sys
import tempfile
import time
from pathlib import Path

import _children as children
import _measure as measure
import numpy as np

from keras_capsule_poe import registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import DataError
from keras_capsule_poe.models.base.features import compute_features
from keras_capsule_poe.training import Reporter, load_data, train

MODEL = "capsules"
FULL = 59_000
COLUMNS = "stage images seconds peak_mb steps step_ms images_per_s minutes_full".split()


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
    images, held_out = len(data.train), len(data.held_out)
    clock = Clock()
    start = time.perf_counter()
    run = train(registry.untrained(config), folder, lambda: data, clock, stage=name)
    seconds = time.perf_counter() - start
    row = {"stage": name, "images": images, "seconds": seconds, "peak_mb": measure.peak_mb()}
    if name == list(config.STAGES)[-1]:  # the export, which does not grow with the images
        return {**row, "minutes_full": seconds / 60}
    if clock.ends:
        each = clock.step_seconds()
        steps = config.steps(images)[name]
        full = registry.settings(MODEL).steps(FULL)[name]
        row |= {"steps": steps, "step_ms": 1e3 * each}
        batch, more = config.trained(name).batch_size, full - steps
    else:  # the features, once more without start-up
        batch, more = images + held_out, (FULL + held_out) / (images + held_out) - 1
        start = time.perf_counter()
        compute_features(run)
        each = time.perf_counter() - start
    return {**row, "images_per_s": batch / each, "minutes_full": (seconds + more * each) / 60}


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--images", type=int, default=4096, help="training images")
    parser.add_argument("--full", action="store_true", help="all images and default epochs")
    args = parser.parse_args()
    limit = None if args.full else 512 if args.quick else args.images
    config = registry.settings(MODEL, dataset=args.dataset, limit=limit)
    config.set_all(epochs=None if args.full else 1)
    try:
        children.in_child(load_images, config.dataset)
    except (DataError, RuntimeError) as error:
        sys.exit(f"pipeline: {error}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            children.in_child(stage_row, config, Path(folder) / "model", stage)
            for stage in config.stages
        ]
    sums = {name: sum(row[name] for row in rows) for name in ("seconds", "minutes_full")}
    total = {"stage": "all", "is_full": rows[0]["images"] == FULL, **sums}
    total["peak_mb"] = max(row["peak_mb"] for row in rows)
    measure.report([*rows, total], COLUMNS, args.json, dataset=args.dataset)


if __name__ == "__main__":
    main()
