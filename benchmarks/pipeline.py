"""Minutes, peak memory and share of the floor of each stage of `capspoe train`.

Each stage runs in a process of its own. The floor is the stage's floating-point operations at the
machine's large float32 product rate, measured beside it. Without --full, a few images are used:
"minutes_full" scales a stage's last epoch to 60,000 images and the default epochs, and adds its
start-up; peak memory is then not that of a full run.
Usage: python benchmarks/pipeline.py [--dataset fashion_mnist] [--images 2048 | --full] [--json FILE]
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
        self.epochs = []

    def epoch(self, stage, epoch, metrics):
        self.epochs.append(metrics["seconds"])


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
    if stage not in sections():  # the features, one pass
        stepping, full_epochs = seconds, 1
    else:
        # The first epoch builds graphs, if there are more.
        stepping = clock.epochs[-1]
        full_epochs, _ = schedule(getattr(RunConfig(), stage), FULL)
    flops = planned["gflop"] * 1e9 / planned["epochs"]
    epochs = FULL / images * full_epochs
    if images == FULL:
        minutes = seconds / 60
    else:
        minutes = (seconds - stepping * len(clock.epochs or [0]) + stepping * epochs) / 60
    return {
        **row,
        "epochs": planned["epochs"],
        "gflop": planned["gflop"],
        "images_per_s": images / stepping,
        "floor_share": flops / rate / stepping,
        "minutes_full": minutes,
    }


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--images", type=int, default=2048, help="training images")
    parser.add_argument("--full", action="store_true", help="all images and default epochs")
    args = parser.parse_args()
    limit = None if args.full else 512 if args.quick else args.images
    config = RunConfig(dataset=args.dataset, limit=limit)
    if not args.full:
        for section in (config.autoencoder, config.encoder, config.decoder):
            section.epochs = 2
    try:
        measure.in_child(load_images, config.dataset)
    except (DataError, RuntimeError) as error:
        sys.exit(f"pipeline: {error}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure.in_child(stage_row, config, Path(folder) / "model", stage)
            for stage in STAGES
        ]
    sums = {name: sum(row[name] for row in rows) for name in ("seconds", "minutes_full")}
    total = {"stage": "all", "is_full": rows[0]["images"] == FULL, **sums, "peak_mb": max(row["peak_mb"] for row in rows)}
    measure.report([*rows, total], COLUMNS, args.json, dataset=args.dataset)


if __name__ == "__main__":
    main()
