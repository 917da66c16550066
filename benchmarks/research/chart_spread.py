"""How far the codes of affine capsules are from what is drawn in their charts, a plain Gaussian.

A row for each model, means over the capsules that win 1% of the test images or more: how many
these are; the share of their images on the pole's side; of their coordinates r in R^(E-1) the
length of the mean, and the standard deviations along the principal axes, the largest, the median
and the smallest; and in how many dimensions they spread, the participation ratio of the variances
(tr C)^2 / tr C^2. A plain Gaussian of 15 dimensions has 0, 1, 1, 1 and 15.

Usage: python benchmarks/research/chart_spread.py MODEL_DIR [MODEL_DIR ...]
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from charts import is_near_pole, to_chart

from keras_capsule_poe.cli.options import load_model, load_run_data
from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.data.mapping import map_batches

SHARE = 0.01
COLUMNS = ("capsules", "near_pole", "mean", "largest", "median", "smallest", "dimensions")


def spread(r):
    """Figures of coordinates (N, K): a dict of `COLUMNS` from `mean` on.

    >>> random = np.random.default_rng(0).normal(size=(100_000, 15))
    >>> {name: round(float(value), 1) for name, value in spread(random).items()}
    {'mean': 0.0, 'largest': 1.0, 'median': 1.0, 'smallest': 1.0, 'dimensions': 15.0}
    >>> round(spread(np.outer(random[:, 0], np.ones(15)))["dimensions"], 6)
    1.0
    """
    variances = np.maximum(np.linalg.eigvalsh(np.cov(r.T)), 0)
    deviations = np.sqrt(variances)
    return {
        "mean": float(np.linalg.norm(r.mean(axis=0))),
        "largest": float(deviations[-1]),
        "median": float(np.median(deviations)),
        "smallest": float(deviations[0]),
        "dimensions": float(variances.sum() ** 2 / (variances**2).sum()),
    }


def row(model, images):
    """Means over capsules of their figures."""
    found = map_batches(model.encode, images)
    codes, won = found["capsules"].astype("float64"), winners(found["probabilities"])
    near, poles = is_near_pole(model, codes), np.asarray(model.poles, "float64")
    rows = []
    for capsule, pole in enumerate(poles):
        its = won == capsule
        if its.mean() < SHARE:
            continue
        r = to_chart(codes[its & near[:, capsule], capsule], pole)
        rows.append({"near_pole": float(near[its, capsule].mean()), **spread(r)})
    means = {name: float(np.mean([row[name] for row in rows])) for name in COLUMNS[1:]}
    return {"capsules": len(rows), **means}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL_DIR")
    args = parser.parse_args()
    print("| model | " + " | ".join(COLUMNS) + " |\n" + "|---" * (1 + len(COLUMNS)) + "|")
    for folder in args.models:
        found = row(load_model(folder), load_run_data(folder).test.images)
        print(f"| {folder} | " + " | ".join(f"{found[name]:.3g}" for name in COLUMNS) + " |")


if __name__ == "__main__":
    main()
