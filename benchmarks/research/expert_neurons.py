"""Single capsules of expert neurons, drawn exactly: readings of the routing, and feature lengths.

Each row trains the model `neurons` with a preset and settings on the features of 12,000 training
images, of an autoencoder that all rows share, and judges 2,000 draws of each kind against 2,000
others, the last training images: `recognised`, `purity`, `modal` classes, `coverage` and
`frechet` of single capsules, with `posterior_` for the domain of that name and `joint_` for all at
once; `loss` is the relative error of held-out features from one mean-field step, `fit_s` the
seconds of training. Rows that were made are kept: a table that was stopped goes on where it was.

Usage: python benchmarks/research/expert_neurons.py FOLDER [--dataset NAME] [--rows NAME ...]
           [--seeds N ...] [--pictures]
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from plain_form import HELD_OUT, IMAGES, Problem

from keras_capsule_poe import ProductOfExpertNeurons, registry
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.scores import scores_of
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.base.features import build_primary, sgd
from keras_capsule_poe.models.neurons.experts import (
    build_experts,
    settle_shares,
    start_maps,
    visits,
)

# The rows that are published: a preset, and settings beside its own.
ROWS = {
    "held": ("held", {}),
    "latent": ("latent", {}),
    "mixture": ("mixture", {}),
    "mixture, length 0.5": ("mixture", {"primary.target_length": 0.5}),
    "mixture, length 0.8": ("mixture", {"primary.target_length": 0.8}),
    "mixture, length 2": ("mixture", {"primary.target_length": 2.0}),
    "mixture, twice as long": ("mixture", {"experts.steps": 1800}),
    "mixture, no balance": ("mixture", {"experts.load_balancing": 0.0}),
}
SOURCES = {
    "": ("single", "prior"),
    "posterior_": ("single", "posterior"),
    "joint_": ("joint", None),
}
COLUMNS = "recognised purity modal coverage frechet posterior_recognised joint_frechet loss fit_s"
PICTURED = 8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--pictures", action="store_true")
    return parser.parse_args()


def train(problem, preset, settings, seed):
    """The `ProductOfExpertNeurons` of these settings, its error and the seconds it took."""
    settings = registry.settings("neurons", preset, seed=seed, **settings)
    experts, maps = settings.experts, problem.train
    primary = build_primary(settings, maps.shape[1:])
    primary.adapt(maps[start : start + 500] for start in range(0, IMAGES, 500))
    visible = primary.to_capsules
    begun = time.perf_counter()
    model = build_experts(settings, primary.capsules)
    start_maps(model.machine, settings, lambda rows: map_batches(visible, maps[rows]), IMAGES)
    model.compile(sgd(experts, IMAGES), jit_compile=False)
    epochs, steps = experts.schedule.over(IMAGES)
    stream = batches(maps, batch_size=experts.batch_size, seed=seed, epochs=epochs).map(visible)
    model.fit(stream, epochs=epochs, steps_per_epoch=steps, shuffle=False, verbose=0)
    if experts.routing == "mixture":
        settle_shares(model.machine, visible, maps)
    seconds = time.perf_counter() - begun
    found = visits(model, visible, maps, experts.posterior_states)
    model.machine.mean_coefficients.assign(found["coefficients"])
    held_out = map_batches(visible, problem.held_out)
    size = experts.batch_size
    scored = model.evaluate(held_out, batch_size=size, verbose=0, return_dict=True)
    product = ProductOfExpertNeurons(problem.autoencoder, primary, model)
    product.build((None, *problem.autoencoder.image_shape))
    product.posteriors.assign(found["visited"])
    product.shares.assign(found["shares"])
    return product, {"loss": scored["loss"], "fit_s": seconds}


def judged(problem, product):
    """Figures of each kind of draw."""
    real, _ = problem.judge(problem.held_out_images)
    figures = {}
    for prefix, (mode, domain) in SOURCES.items():
        drawn = product.sample(HELD_OUT, seed=0, mode=mode, domain=domain)
        found = scores_of(problem.judge(drawn["images"]), real, drawn.get("capsule"))
        if "class_coverage" in found:
            found["modal"] = found["class_coverage"]
        wanted = ("recognised", "purity", "modal", "coverage", "frechet")
        figures |= {prefix + name: found[name] for name in wanted if name in found}
    return figures


def main():
    args = arguments()
    folder = args.folder / args.dataset
    problem, kept = Problem(args.dataset, folder), folder / "neurons.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for name in args.rows:
        preset, settings = ROWS[name]
        rows = done.setdefault(name, {})
        for seed in map(str, args.seeds):
            if seed in rows and not args.pictures:
                continue
            product, found = train(problem, preset, settings, int(seed))
            rows[seed] = {**found, **judged(problem, product)}
            kept.write_text(json.dumps(done, indent=1) + "\n")
            if args.pictures:
                drawn = product.sample(PICTURED * product.capsules, 0, "single", "prior")
                order = np.argsort(drawn["capsule"], kind="stable")
                grid = drawn["images"][order].reshape(
                    product.capsules, PICTURED, *product.image_shape
                )
                save_grid(folder / f"{name}-{seed}.png", list(grid.swapaxes(0, 1)))
        values = [rows[str(seed)] for seed in args.seeds]
        shown = (
            f"{column} {np.mean([v[column] for v in values]):.3g}"
            f"±{np.std([v[column] for v in values], ddof=len(values) > 1):.2g}"
            for column in COLUMNS.split()
        )
        print(f"{args.dataset}, {name}: " + "  ".join(shown), flush=True)


if __name__ == "__main__":
    main()
