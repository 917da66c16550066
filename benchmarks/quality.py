"""What the fast path gives against the plain path: reconstruction and probe, over seeds.

A small model of the bundled digits, trained twice from each seed, on the same features: once with
`implementation="fused"`, once with `"reference"`. Each "difference" must lie within the seeds'.
Usage: python benchmarks/quality.py [--json FILE]
"""

import shutil
import tempfile
from pathlib import Path

import _children as children
import _measure as measure
import numpy as np

IMPLEMENTATIONS = ("fused", "reference")
SEEDS = (0, 1)
FIGURES = ("relative_error", "probe")
COLUMNS = ("seed", *(f"{name} {kind}" for name in FIGURES for kind in IMPLEMENTATIONS))


def figures(folder, seed, implementation):
    """Relative error of held-out primary capsules and probe accuracy of a run."""
    from keras_capsule_poe import ProductOfExpertCapsules, registry
    from keras_capsule_poe.data import load_images
    from keras_capsule_poe.evaluation import evaluate
    from keras_capsule_poe.training import Reporter, train

    data = load_images("digits", seed=seed)
    config = registry.settings("capsules", dataset="digits", seed=seed)
    settings = {"autoencoder.filters": 32, "encoder.capsules": 10}
    settings |= {"autoencoder.epochs": 2, "encoder.epochs": 4, "decoder.epochs": 4}
    settings["compute.implementation"] = implementation or "fused"
    config.update(settings)
    quiet = Reporter(verbose=0)
    last = "decoder" if implementation else "features"
    run = train(registry.untrained(config), folder, lambda: data, quiet, stage=last)
    if implementation:
        found = evaluate(ProductOfExpertCapsules.from_parts(run), data)
        return found["reconstruction"]["primary_capsules"], found["probe"]["capsules"]


def main():
    args = measure.parser(__doc__).parse_args()
    runs = [(seed, kind) for seed in SEEDS for kind in IMPLEMENTATIONS]
    with tempfile.TemporaryDirectory() as folder:
        starts = [Path(folder) / str(seed) for seed in SEEDS]
        children.in_children(figures, [(*pair, None) for pair in zip(starts, SEEDS)])
        models = [Path(folder) / f"{seed}-{kind}" for seed, kind in runs]
        for (seed, _), model in zip(runs, models):
            shutil.copytree(Path(folder) / str(seed), model)
        found = children.in_children(
            figures, [(model, seed, kind) for (seed, kind), model in zip(runs, models)]
        )
    rows = [{"seed": seed} for seed in SEEDS]
    for (seed, kind), values in zip(runs, found):
        row = rows[SEEDS.index(seed)]
        row |= {f"{name} {kind}": value for name, value in zip(FIGURES, values)}
    worst = {}
    for name in FIGURES:
        ours, plain = (
            np.array([row[f"{name} {kind}"] for row in rows]) for kind in IMPLEMENTATIONS
        )
        worst[name] = {
            "mean_difference": abs(float((ours - plain).mean())),
            "seed_spread": float(plain.std(ddof=1)),
        }
        print(
            f"{name}: mean difference {worst[name]['mean_difference']:.4f}, "
            f"standard deviation over seeds {worst[name]['seed_spread']:.4f}"
        )
    measure.report(rows, COLUMNS, args.json, differences=worst)


if __name__ == "__main__":
    main()
