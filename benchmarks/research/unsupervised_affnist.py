"""Linear probes for affNIST-like digits on what was learned from translated ones, without labels.

A model that generates, trained on translated digits (`capspoe train --dataset
mnist_translated`), codes them; logistic regression on their codes is fitted to the labels of
training images, and scored on translated and on affNIST-like test images, which are also turned,
sheared and scaled. Beside it the same on the features of the model's autoencoder and on pixels.
Nothing is chosen: the regression is that of `capspoe evaluate`. Sparse unsupervised capsules with
a support vector machine have 90% (Rawlinson et al., 2018), supervised ones 79% (Sabour et al.).

Usage: python benchmarks/research/unsupervised_affnist.py MODEL_DIR [--images N]
           [--test-images N] [--inputs NAME ...] [--manual-dir FOLDER] [--json FILE]
"""

import argparse
import json
import os
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from keras_capsule_poe.cli.options import load_model, load_run_data, load_settings
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.classification import wilson_interval

ENDING = "_translated"
INPUTS = {
    "capsules": lambda model, images: map_batches(model.encode, images)["capsules"],
    "probabilities": lambda model, images: map_batches(model.encode, images)["probabilities"],
    "features": lambda model, images: map_batches(model.to_features, images),
    "pixels": lambda model, images: to_pixels(images),
}


def scores(model, name, train, tests):
    """Accuracy on each of the sets of `tests` of a regression on one of `INPUTS`.

    Args:
        train: `ImageSet`.
        tests: dict of `ImageSet`.
    """

    def inputs(images):
        return np.reshape(INPUTS[name](model, images), (len(images), -1)).astype("float32")

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=100))
    with warnings.catch_warnings():
        # More steps change the last digits of the accuracy.
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(inputs(train.images), train.labels)
    found = {}
    for test, images in tests.items():
        right = int(np.sum(probe.predict(inputs(images.images)) == images.labels))
        low, high = wilson_interval(right, len(images))
        found[test] = {"accuracy": right / len(images), "low": low, "high": high}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--images", type=int, default=12_000, help="training images of each probe")
    parser.add_argument("--test-images", type=int)
    parser.add_argument("--inputs", nargs="+", choices=INPUTS, default=list(INPUTS))
    parser.add_argument("--manual-dir", help="affNIST's own files, instead of digits like them")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    dataset = load_settings(args.model_dir).dataset.partition("/")[0]
    if not dataset.endswith(ENDING):
        raise SystemExit(f"The model must be one of a data set NAME{ENDING}. Received: {dataset}")
    model, data = load_model(args.model_dir), load_run_data(args.model_dir)
    affine = load_images(dataset.removesuffix(ENDING) + "_affine", manual_dir=args.manual_dir)
    tests = {"translated": data.test, "affNIST-like": affine.test}
    if args.test_images:
        tests = {name: images.head(args.test_images) for name, images in tests.items()}
    train, rows = data.train.head(args.images), {}
    for name in args.inputs:
        rows[name] = scores(model, name, train, tests)
        shown = "  ".join(
            f"{test} {100 * found['accuracy']:.2f}% ({100 * found['low']:.2f} to "
            f"{100 * found['high']:.2f})"
            for test, found in rows[name].items()
        )
        print(f"{name}: {shown}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
