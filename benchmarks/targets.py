"""What a model of the paper's two data sets should reach, and whether it does.

Usage: python benchmarks/targets.py FIGURES.json --dataset mnist, of `capspoe evaluate --json`.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from keras_capsule_poe.evaluation.report import text_table
from keras_capsule_poe.former_names import current_metrics

RECOGNISED = "single-capsule samples recognised, {}"
# (what, how it is taken from the figures, "least" or "most", Fashion-MNIST, MNIST)
_TARGETS = (
    (
        RECOGNISED.format("posterior"),
        lambda f: f["samples"]["posterior"]["confident"],
        "least",
        0.7,
        0.955,
    ),
    (
        RECOGNISED.format("prior"),
        lambda f: f["samples"]["prior"]["confident"],
        "least",
        0.66,
        0.9,
    ),
    (
        "different modal classes of columns, posterior",
        lambda f: f["samples"]["posterior"]["class_coverage"],
        "least",
        8,
        8,
    ),
    (
        "mean purity of a column, posterior",
        lambda f: f["samples"]["posterior"]["purity"],
        "least",
        0.8,
        0.81,
    ),
    (
        "mean purity of a column, prior",
        lambda f: f["samples"]["prior"]["purity"],
        "least",
        0.8,
        0.81,
    ),
    (
        "coverage, posterior, of that of real images",
        lambda f: _ratio(f, "coverage", "posterior", "real"),
        "least",
        0.4,
        0.4,
    ),
    (
        "Frechet distance, posterior over full Gaussian",
        lambda f: _ratio(f, "FID", "posterior", "full_gaussian"),
        "most",
        1.0,
        0.5,
    ),
    (
        "Frechet distance, joint over Gaussian mixture",
        lambda f: _ratio(f, "FID", "joint", "gaussian_mixture"),
        "most",
        1.0,
        1.0,
    ),
    (
        "linear probe of capsules, over raw pixels",
        lambda f: f["probe"]["capsules"] - f["probe"]["pixels"],
        "least",
        0.01,
        None,
    ),
    ("linear probe of capsules", lambda f: f["probe"]["capsules"], "least", None, 0.968),
    (
        "clustering by merged capsules, accuracy",
        lambda f: f["clustering"]["merged_capsules"]["accuracy"],
        "least",
        0.61,
        0.88,
    ),
    (
        "clustering by merged capsules, NMI",
        lambda f: f["clustering"]["merged_capsules"]["nmi"],
        "least",
        0.64,
        0.81,
    ),
    (
        "relative error of primary capsules, whole code",
        lambda f: f["reconstruction"]["primary_capsules"],
        "most",
        0.15,
        0.15,
    ),
)
_DATASETS = ("fashion_mnist", "mnist")


def target_rows(dataset, figures):
    """One row for each target of a data set.

    Args:
        dataset: str.
        figures: dict of `evaluate`, with `sample_metrics` under `samples`.

    Returns:
        list of (what, measured, target as text, "yes" or "no"); empty for other data sets.
    """
    if dataset not in _DATASETS:
        return []
    rows = []
    for what, value, side, *targets in _TARGETS:
        target = targets[_DATASETS.index(dataset)]
        if target is None:
            continue
        measured = value(figures)
        met = measured >= target if side == "least" else measured <= target
        rows.append((what, measured, f"at {side} {target:g}", "yes" if met else "no"))
    return rows


def _ratio(figures, name, of, over):
    return figures["samples"][of][name] / figures["samples"][over][name]


def table_of(dataset, runs):
    """The targets of a data set as columns and rows, of one model or of several.

    Args:
        dataset: str.
        runs: list of dicts of figures, one a model.

    Returns:
        list of column names, list of rows, as `text_table` takes them.
    """
    rows = [target_rows(dataset, run) for run in runs]
    columns = ["measured", "target", "reached" if len(runs) == 1 else "reached by"]
    return columns, [_over_models(row) for row in zip(*rows)]


def _over_models(rows):
    """The same target of each model as one row."""
    what, _, target, _ = rows[0]
    if len(rows) == 1:
        return rows[0]
    values = [row[1] for row in rows]
    met = sum(row[3] == "yes" for row in rows)
    spread = float(np.mean(values)), float(np.std(values, ddof=1))
    return what, spread, target, f"{met} of {len(rows)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", type=Path)
    parser.add_argument("--dataset", choices=_DATASETS, required=True)
    args = parser.parse_args()
    figures = json.loads(args.figures.read_text())
    print(
        text_table(
            *table_of(
                args.dataset,
                [
                    current_metrics(run.get("evaluation", run))
                    for run in figures.get("runs", [figures])
                ],
            )
        )
    )


if __name__ == "__main__":
    main()
