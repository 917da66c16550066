"""What the paper claims of single capsules, as figures of trained models, on the test images.

A row for each kind of draw of single capsules, `prior`, `half_space`, the half-sphere of
training, and `posterior`; 2,000 each, judged by a classifier of the data set against as many test
images. Beside recognition, `negatives` is the share of draws nearer to the negative of a training
image than to any; `flip` the cosine of the primary capsules decoded from x_j and from -x_j, which
is -1 of an odd decoder; `flip_pixels` that of the images, about the mean image; `last` and
`real_last` the mean of the last row and column of draws and of test images. Models of one name
are taken for seeds: their mean and standard deviation. `auc` is of free energies of test images
against those of their negatives: one half where F is even. All models are of one data set. With
--held-out training images that were held out stand in for test images: to choose by.

Usage: python benchmarks/research/claims.py NAME=MODEL_DIR [NAME=MODEL_DIR ...] [--held-out]
           [--json FILE]
"""

import argparse
import dataclasses
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from _cells import cell

from keras_capsule_poe.cli.options import load_model, load_run_data
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.generative import sign_metrics
from keras_capsule_poe.evaluation.scores import scores_of
from keras_capsule_poe.plotting import render

FITTED, DRAWN = 12_000, 2_000
DOMAINS = ("prior", "half_space", "posterior")
COLUMNS = (
    "confident purity class_coverage coverage precision recall FID negatives flip "
    "flip_pixels last real_last auc"
).split()


def rows(model, data, judge):
    """Figures by kind of draw."""
    signs = sign_metrics(model, data, DRAWN)
    real, _ = judge(data.test.images[:DRAWN])
    mean_image = to_pixels(data.train.images[:FITTED]).mean(axis=0)
    found = {}
    for domain in DOMAINS:
        drawn = model.draw(DRAWN, 0, "single", domain)
        codes = np.asarray(drawn["capsules"])
        images, turned = (render(model, sign * codes) for sign in (1, -1))
        x, negative = (map_batches(model.decode_visible, sign * codes) for sign in (1, -1))
        scores = scores_of(judge(images), real, np.asarray(drawn["capsule"]))
        found[domain] = {
            **scores,
            "negatives": signs[f"negatives_{domain}"],
            "flip": cosine(x, negative),
            "flip_pixels": cosine(images - mean_image, turned - mean_image),
            "last": last_pixels(images),
            "real_last": last_pixels(to_pixels(data.test.images)),
            "auc": signs["auc"],
        }
    return found


def cosine(a, b):
    """Mean over examples of the cosine of a (N, ...) and b.

    >>> cosine(np.ones((2, 3, 1)), -np.ones((2, 3, 1)))
    -1.0
    """
    a, b = (np.reshape(part, (len(part), -1)).astype("float64") for part in (a, b))
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return round(float(np.mean((a * b).sum(axis=1) / np.maximum(sizes, 1e-30))), 12)


def last_pixels(images):
    """Mean of the last row and column of images (N, H, W, C).

    >>> last_pixels(np.ones((2, 3, 3, 1)))
    1.0
    """
    return float((images[:, -1].mean() + images[:, :, -1].mean()) / 2)


def line(name, found):
    """A row of the table: the mean over seeds, and the standard deviation of more than one.

    >>> line("a", [{"recall": 0.25}, {"recall": 0.35}]).split("|")[7]
    ' 0.3 ± 0.071 '
    """
    cells = [cell([row[column] for row in found if column in row]) for column in COLUMNS]
    return f"| {name} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL_DIR")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--json", type=Path, help="kept, and what it has is not made anew")
    args = parser.parse_args()
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    named, judge = {}, None
    for text in args.models:
        name, _, folder = text.partition("=")
        key = f"{folder}, held out" if args.held_out else folder
        if key not in kept:
            data = load_run_data(folder)
            if args.held_out:
                data = dataclasses.replace(data, test=data.held_out)
            judge = judge or evaluation_classifier(data.train)
            kept[key] = rows(load_model(Path(folder)), data, judge)
            if args.json:
                args.json.write_text(json.dumps(kept, indent=1) + "\n")
        named.setdefault(name, []).append(kept[key])
    print("| | " + " | ".join(COLUMNS) + " |\n" + "|---" * (1 + len(COLUMNS)) + "|")
    for name, found in named.items():
        for domain in DOMAINS:
            print(line(f"{name}, {domain}", [rows[domain] for rows in found]))


if __name__ == "__main__":
    main()
