"""Minutes, peak memory and share of the floor of each stage of `capspoe train`.

Each stage runs in a process of its own. The floor is the stage's floating-point operations at the
machine's large float32 product rate, measured beside it. With fewer images than a full run,
"minutes_full" scales the steps, and not the start-up, to 60,000 images and the default epochs.
Usage: python benchmarks/pipeline.py [--dataset fashion_mnist] [--images 4096 | --full] [--json FILE]
"""

import sys
import tempfile
import time
from pathlib import Path

import _measure as measure

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.training import STAGES, Reporter, RunConfig, train
from keras_capsule_poe.training.config import sections, schedule
from keras_capsule_poe.training.plan import plan, product_rate

FULL = 60_000
COLUMNS = "stage images epochs seconds peak_mb images_per_s gflop floor_share minutes_full".split()


class _Clock(Reporter):
    """Seconds spent in the epochs of a stage, without its start-up."""

    def __init__(self):
        super().__init__(write=lambda line: None)
        self.stepping = 0.0

    def epoch(self, stage, epoch, metrics):
        self.stepping += metrics["seconds"]


def stage_row(config, folder, stage):
    """One stage, measured in this process."""
    data = load_images(config.dataset, limit=config.limit)
    images = len(data.train)
    planned = plan(config, data)["stages"].get(stage)
    rate, clock = product_rate(), _Clock()
    start = time.perf_counter()
    train(config, folder, lambda: data, clock, stage=stage)
    seconds = time.perf_counter() - start
    row = {"stage": stage, "images": images, "seconds": seconds, "peak_mb": measure.peak_mb()}
    if not planned:  # the export, which takes what it takes
        return {**row, "minutes_full": seconds / 60}
    epochs, stepping = planned["epochs"], clock.stepping or seconds
    full_epochs = 1
    if stage in sections():
        full_epochs, _ = schedule(getattr(RunConfig(), stage), FULL)
    scale = full_epochs * FULL / (epochs * images)
    return {
        **row,
        "epochs": epochs,
        "gflop": planned["gflop"],
        "images_per_s": epochs * images / stepping,
        "floor_share": planned["gflop"] * 1e9 / rate / stepping,
        "minutes_full": (seconds - stepping + stepping * scale) / 60,
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
        measure.in_child(load_images, config.dataset, limit=1)
    except (DataError, RuntimeError) as error:
        sys.exit(f"pipeline: {error}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure.in_child(stage_row, config, Path(folder) / "model", stage)
            for stage in STAGES
        ]
    sums = {name: sum(row[name] for row in rows) for name in ("seconds", "minutes_full")}
    total = {"stage": "all", **sums, "peak_mb": max(row["peak_mb"] for row in rows)}
    measure.report([*rows, total], COLUMNS, args.json, dataset=args.dataset)


if __name__ == "__main__":
    main()
