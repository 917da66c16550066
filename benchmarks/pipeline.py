"""Minutes, peak memory and share of the floor of each stage of `capspoe train`.

Each stage runs in a process of its own. The floor is the stage's floating-point operations at the
machine's large float32 product rate, measured beside it. With fewer images than a full run,
"minutes_full" scales the steps, and not the start-up, to 60,000 images and the default epochs.
Usage: python benchmarks/pipeline.py [--dataset fashion_mnist] [--images 4096 | --full] [--json FILE]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import _measure as measure

from keras_capsule_poe.data import load_images
from keras_capsule_poe.training import STAGES, Reporter, RunConfig, train
from keras_capsule_poe.training.config import DEFAULT_STEPS
from keras_capsule_poe.training.plan import plan, product_rate
from keras_capsule_poe.files import RunError

FULL = 60_000
COLUMNS = "stage images seconds peak_mb images_per_s gflop floor_share minutes_full".split()


class _Clock(Reporter):
    """Seconds spent in the epochs of a stage, without its start-up."""

    def __init__(self):
        super().__init__(write=lambda line: None)
        self.epochs = []

    def epoch(self, stage, epoch, metrics):
        self.epochs.append(metrics["seconds"])


def stage_row(config, folder, stage, images):
    """One stage, measured in this process."""
    data = load_images(config.dataset, limit=config.limit)
    planned = plan(config, data)["stages"].get(stage)
    rate = product_rate()
    clock = _Clock()
    start = time.perf_counter()
    train(config, folder, lambda: data, clock, stage=stage)
    seconds = time.perf_counter() - start
    row = {"stage": stage, "images": images, "seconds": seconds}
    row["peak_mb"] = measure._peak() / measure.MB
    if planned:
        stepping = sum(clock.epochs) or seconds
        visited = images * planned["epochs"]
        full = FULL * max(1, round(DEFAULT_STEPS / (FULL / 128))) if clock.epochs else FULL
        row["gflop"] = planned["gflop"]
        row["images_per_s"] = visited / stepping
        row["floor_share"] = planned["gflop"] * 1e9 / rate / stepping
        row["minutes_full"] = (seconds - stepping + stepping * full / visited) / 60
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--images", type=int, default=4096, help="training images")
    parser.add_argument("--full", action="store_true", help="all images and default epochs")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    args = parser.parse_args()
    config = RunConfig(dataset=args.dataset, limit=None if args.full else args.images)
    if not args.full:
        for section in (config.autoencoder, config.encoder, config.decoder):
            section.epochs = 1
    images = FULL if args.full else args.images
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = [
                measure.in_child(stage_row, config, Path(folder) / "model", stage, images)
                for stage in STAGES
            ]
        except (RuntimeError, RunError) as error:
            sys.exit(f"pipeline: {error}")
    total = {"stage": "all", "images": images, "seconds": sum(row["seconds"] for row in rows)}
    total["peak_mb"] = max(row["peak_mb"] for row in rows)
    # Stages without a row of steps, the export, take what they take.
    total["minutes_full"] = sum(row.get("minutes_full", row["seconds"] / 60) for row in rows)
    measure.report([*rows, total], COLUMNS, args.json)


if __name__ == "__main__":
    main()
