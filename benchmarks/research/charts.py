"""Affine capsules along R^n: what the coordinates of a half-sphere's chart say of images.

The half-sphere around the pole b of a capsule is R^15 in its gnomonic chart, r = Q z / (b.z/|b|),
with Q an orthonormal basis across b. For each capsule and quantity (ink, the mean pixel, and those
of `instantiation`) the coordinate of the highest absolute rank correlation is found on training
images that the capsule wins and is nearer to its pole than to the other side, and its correlation
on test images is reported (`best`). Then this coordinate goes from -2 to 2, the others are
zero, and what is decoded is measured: `moved` is the rank correlation of the quantity with the
step. Nothing need be measured around a great circle: it ends where it began.

Usage: python benchmarks/research/charts.py MODEL_DIR digits|clothes [--images N] [--json FILE]
           [--pictures FILE]
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from instantiation import rank_correlation, report

from keras_capsule_poe.plotting import render

STEPS, SPAN = 9, 2.0


def across(pole):
    """An orthonormal basis (E - 1, E) of what is across a pole (E,).

    >>> np.abs(across(np.array([0.0, 3.0]))).tolist()
    [[1.0, 0.0]]
    """
    return np.linalg.svd(pole[None])[2][1:]


def to_chart(codes, pole):
    """Coordinates (N, E - 1) of codes (N, E) of the half-sphere around a pole (E,).

    >>> np.abs(to_chart(np.array([[3.0, 1.5]]), np.array([2.0, 0.0]))).tolist()
    [[0.5]]
    """
    return codes @ across(pole).T / (codes @ pole / np.linalg.norm(pole))[:, None]


def of_chart(r, pole):
    """Directions (N, E) of coordinates (N, E - 1).

    >>> codes = of_chart(np.array([[0.5]]), np.array([2.0, 0.0]))
    >>> np.allclose(to_chart(codes, np.array([2.0, 0.0])), 0.5)
    True
    """
    codes = pole / np.linalg.norm(pole) + r @ across(pole)
    return codes / np.linalg.norm(codes, axis=-1, keepdims=True)


def row(model, measure, capsule, train, test):
    """Figures of a capsule and a quantity, and the images along the best coordinate."""
    (codes, values), (others, wanted) = ((c[:, capsule], v) for c, v in (train, test))
    pole = np.asarray(model.poles, "float64")[capsule]
    r, its = to_chart(codes, pole), to_chart(others, pole)
    best = int(np.argmax([abs(rank_correlation(x, values)) for x in r.T]))
    steps = np.zeros((STEPS, r.shape[1]))
    steps[:, best] = np.linspace(-SPAN, SPAN, STEPS)
    moved = np.zeros((STEPS, model.capsules, model.dim), "float32")
    moved[:, capsule] = np.linalg.norm(codes, axis=-1).mean() * of_chart(steps, pole)
    images = render(model, moved)
    shown = np.array([measure(image.mean(axis=-1)) for image in images])
    return {
        "capsule": capsule,
        "axis": best,
        "best": rank_correlation(its[:, best], wanted),
        "moved": rank_correlation(np.arange(STEPS), shown),
    }, images


def is_near_pole(model, codes):
    """Whether codes (N, J, E) lie in the half-spheres around their poles, bools (N, J)."""
    if model.poles is None:
        raise SystemExit("The capsules of this model have no poles: train the recipe 'affine'.")
    return np.einsum("nje,je->nj", codes, np.asarray(model.poles)) > 0


if __name__ == "__main__":
    report(__doc__.splitlines()[0], row, more={"ink": (np.mean, None)}, usable=is_near_pole)
