"""Instantiation parameters: what of a pose the dimensions of a trained capsule say.

Stroke width, slant and height of digits, and sleeve length of tops and height of shoes, are
measured on images. For each capsule and quantity, the dimension of the highest absolute rank
correlation is found on training images that the capsule wins, and its correlation on test images
is reported (`best`), with that of a ridge regression on all dimensions of the capsule
(`regression`).
Then the capsule's mean code is turned along that dimension, decoded and measured again: `moved` is
the rank correlation with the step, `range` from the least to the most that was measured, in
deviations of the quantity over the capsule's images.

Usage: python benchmarks/research/instantiation.py MODEL_DIR digits|clothes [--images N]
           [--json FILE] [--pictures FILE]
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from scipy import ndimage
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge

from keras_capsule_poe.cli.options import load_model, load_run_data
from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.plotting import render, traversal

FEWEST, STEPS, SPAN, HIGH = 100, 11, 0.5, 0.7
TOPS, SHOES = {0, 2, 4, 6}, {5, 7, 9}
FINER = 4  # how many times finer the grid is on which strokes are measured


def stroke(image):
    """Mean width of the strokes, pixels: twice the distance from their ridge to the edge.

    >>> bar = np.zeros((28, 28)); bar[4:24, 12:16] = 1
    >>> round(stroke(bar))
    4
    """
    inside = ndimage.zoom(image, FINER, order=1) > 0.5
    distance = ndimage.distance_transform_edt(np.pad(inside, 1))
    ridge = (distance > 0) & (distance == ndimage.maximum_filter(distance, 3))
    return 2 * distance[ridge].mean() / FINER if ridge.any() else np.nan


def _moments(image):
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    ink = image.sum()
    if ink < 1:
        return np.nan, np.nan
    y, x = y - (y * image).sum() / ink, x - (x * image).sum() / ink
    return (y * y * image).sum() / ink, (x * y * image).sum() / ink


def slant(image):
    """Angle to the vertical by second moments, degrees, to the right above zero.

    >>> round(slant(np.fliplr(np.eye(28))))
    45
    """
    vertical, mixed = _moments(image)
    return float(np.degrees(np.arctan2(-mixed, vertical)))


def height(image):
    """Vertical extent: twice the root of three variances, exact for a bar, pixels.

    >>> bar = np.zeros((28, 28)); bar[4:24, 12:16] = 1
    >>> round(height(bar))
    20
    """
    return float(np.sqrt(12 * _moments(image)[0]))


def sleeve(image):
    """Share of the outer quarter on each side that has ink, of the rows that have any.

    >>> top = np.zeros((28, 28)); top[:, 7:21] = 1; top[:14] = 1
    >>> sleeve(top)
    0.5
    """
    ink = image > 0.2
    rows, across = ink.any(axis=1).sum(), image.shape[1] // 4
    if not rows:
        return np.nan
    return float((ink[:, :across].sum() + ink[:, -across:].sum()) / (2 * across * rows))


def rows_of_ink(image):
    """How many rows have ink, pixels.

    >>> bar = np.zeros((28, 28)); bar[4:24, 12:16] = 1
    >>> rows_of_ink(bar)
    20.0
    """
    return float((image > 0.2).any(axis=1).sum())


# Quantity: its measure, and the classes of clothes that have it; digits have the others.
DIGITS = {"stroke": (stroke, None), "slant": (slant, None), "height": (height, None)}
CLOTHES = {"sleeve length": (sleeve, TOPS), "shoe height": (rows_of_ink, SHOES)}


def rank_correlation(a, b):
    known = np.isfinite(a) & np.isfinite(b)
    if known.sum() < 3 or np.ptp(a[known]) == 0 or np.ptp(b[known]) == 0:
        return 0.0
    return float(spearmanr(a[known], b[known])[0])


def row(model, measure, capsule, train, test):
    """Figures of a capsule and a quantity; `train` and `test` are codes (N, J, E) and values."""
    (codes, values), (others, wanted) = train, test
    found = [rank_correlation(codes[:, capsule, e], values) for e in range(model.dim)]
    best = int(np.argmax(np.abs(found)))
    known = np.isfinite(values)
    ridge = Ridge(1e-3).fit(codes[known][:, capsule], values[known])
    mean = codes.mean(axis=0)
    usual = np.linalg.norm(codes, axis=-1).mean(axis=0)
    mean *= (usual / np.maximum(np.linalg.norm(mean, axis=-1), 1e-12))[:, None]
    around = traversal(mean, capsule, [best], STEPS, SPAN, model.CODES)
    images = render(model, around.reshape(-1, *codes.shape[1:]))
    shown = np.array([measure(image.mean(axis=-1)) for image in images])
    return {
        "capsule": capsule,
        "axis": best,
        "best": rank_correlation(others[:, capsule, best], wanted),
        "regression": rank_correlation(ridge.predict(others[:, capsule]), wanted),
        "moved": rank_correlation(np.arange(STEPS), shown),
        "range": float(np.ptp(shown) / max(np.nanstd(values), 1e-12)),
    }, images


def report(title, row, more=None, usable=None):
    """The command: figures of every capsule and quantity, printed, and kept where that is asked.

    Args:
        title: str, what the command is for.
        row: As `row`, a dict of figures and images, of `model, measure, capsule, train, test`.
        more: dict of further quantities, as `DIGITS`.
        usable: Of the model's codes (N, J, E) which of each capsule are taken, bools (N, J);
            None: all.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("quantities", choices=["digits", "clothes"])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args()
    model, data = load_model(args.model_dir), load_run_data(args.model_dir)
    parts, coded = (data.train, data.test), []
    for part in parts:
        found = map_batches(model.encode, part.images[: args.images])
        won = np.eye(model.capsules, dtype=bool)[winners(found["probabilities"])]
        codes = found["capsules"]
        coded.append((codes, won if usable is None else won & usable(model, codes)))
    rows, pictures = {}, []
    quantities = CLOTHES if args.quantities == "clothes" else DIGITS
    for name, (measure, classes) in {**(more or {}), **quantities}.items():
        values = [
            np.array([measure(image.mean(axis=-1) / 255) for image in part.images[: args.images]])
            for part in parts
        ]
        rows[name] = []
        for capsule in range(model.capsules):
            kept = [won[:, capsule] for _, won in coded]
            labels = np.asarray(data.train.labels[: args.images])[kept[0]]
            if min(k.sum() for k in kept) < FEWEST:
                continue
            if classes and np.isin(labels, list(classes)).mean() < 0.5:
                continue
            train, test = ((c[k], v[k]) for (c, _), v, k in zip(coded, values, kept))
            found, images = row(model, measure, capsule, train, test)
            rows[name].append(found)
            pictures.append((abs(found["best"]), images))
        rows[name].sort(key=lambda found: -abs(found["best"]))
        strong = [abs(found["best"]) >= HIGH for found in rows[name]]
        print(f"{name}: {sum(strong)} of {len(strong)} capsules at {HIGH} or more")
        for found in rows[name]:
            print("  " + "  ".join(f"{k} {v:.3g}" for k, v in found.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if args.pictures:
        pictures.sort(key=lambda found: -found[0])
        save_grid(args.pictures, [images for _, images in pictures[:12]])


if __name__ == "__main__":
    report(__doc__.splitlines()[0], row)
