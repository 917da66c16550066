"""Errors and classes of decoded whole codes of trained models, on the test images.

A row for each model: relative errors of primary capsules of the `mean` of 12,000 training images
and of `whole_code` decoded; how often a classifier of the data set names decodings of whole codes
rightly (`accuracy`), and the autoencoder's (`ceiling`); of which share it is sure (`recognised`),
and of 2,000 draws of single capsules (`single`). The test images are for a model that is chosen.

Usage: python benchmarks/research/whole_codes.py MODEL_DIR [MODEL_DIR ...] [--json FILE]
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np

from keras_capsule_poe.cli.options import load_model, load_run_data
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.scores import recognition
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.models.base.protocols import whole

FITTED, DRAWN = 12_000, 2_000


def row(model, data, judge):
    """Figures of a product of expert capsules."""
    x = map_batches(model.to_visible, data.test.images)
    mean = map_batches(model.to_visible, data.train.images[:FITTED]).mean(axis=0)
    # `encode` of a tensor leaves out the shared capsules.
    codes = map_batches(model.code, data.test.images)
    decoded = map_batches(model.render, whole(codes))
    classes = judge(decoded["images"])[1]
    own = judge(map_batches(lambda v: {"images": model.from_visible(v)}, x)["images"])[1]
    drawn = model.sample(DRAWN, seed=0, mode="single", domain="prior")["images"]
    return {
        "mean": float(relative_error(np.broadcast_to(mean, x.shape), x)),
        "whole_code": float(relative_error(decoded["primary_capsules"], x)),
        "accuracy": _accuracy(judge, classes, data.test.labels),
        "ceiling": _accuracy(judge, own, data.test.labels),
        "recognised": recognition(classes)["confident"],
        "single": recognition(judge(drawn)[1])["confident"],
    }


def _accuracy(judge, classes, labels):
    return float(np.mean(judge.labels[classes.argmax(axis=-1)] == labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL_DIR")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {}
    for folder in args.models:
        data = load_run_data(folder)
        found = row(load_model(folder), data, evaluation_classifier(data.train))
        rows[str(folder)] = found
        print(folder, "  ".join(f"{name} {value:.3g}" for name, value in found.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
