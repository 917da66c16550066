"""What the agreement scale, competition and noise on the features do, in trained models.

Each row is a training with its own settings on all training images but the last 5,000, measured on
these or, with --test, on the test images: the columns of `agreement.py`, and `recognised`,
`frechet`, `precision`, `recall`, `coverage` and `purity` of as many draws of single capsules as
there are images, in the domains `prior` and `posterior`.

Rows that were made are kept. The test images are for settings that were chosen.

Usage: python benchmarks/research/agreement_trained.py FOLDER [--dataset NAME] [--rows NAME ...]
           [--seeds N ...] [--test] [--table]
"""

import argparse
import dataclasses
import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from _cells import table
from _kept import is_of
from agreement import NONE, figures

from keras_capsule_poe import registry
from keras_capsule_poe.cli.options import load_model
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.feature_metrics import squared_radii
from keras_capsule_poe.evaluation.scores import scores_of
from keras_capsule_poe.plotting import render
from keras_capsule_poe.training import Reporter, load_data, train


def row(scale=0.1, prior=2.0, noise=0.0, **more):
    """Settings of a row: agreement scale, weight of the activation prior, noise on features."""
    return {
        "autoencoder.feature_noise": noise,
        "encoder.agreement_scale": scale,
        "encoder.activation_prior_weight": prior,
        **more,
    }


ROWS = {
    "default": row(),
    "noise .25": row(noise=0.25),
    "noise .5": row(noise=0.5),
    "noise 1": row(noise=1.0),
    "1 1": row(1.0, 1.0),
    "1 1 noise .5": row(1.0, 1.0, 0.5),
    "2 1 noise .5": row(2.0, 1.0, 0.5),
    "2 .5 noise .5": row(2.0, 0.5, 0.5),
    "5 1 noise .5": row(5.0, 1.0, 0.5),
    "none 1 noise .5": row(NONE, 1.0, 0.5),
}
DOMAINS = ("prior", "posterior")
FIGURES = "recognised frechet precision recall coverage purity".split()
TABLES = {
    "routing": ("winners", "change", "experts", "whole_code", "one_capsule"),
    **{domain: [f"{domain}_{name}" for name in FIGURES] for domain in DOMAINS},
}


def config_of(name, **run):
    """The `Settings` of a row; `run` are its data set and seed."""
    config = registry.settings("capsules", "generation", **run)
    config.update(ROWS[name])
    return config


def images_of(config, is_test):
    """Images whose last 5,000 training images are the test images, unless `is_test`."""
    data = load_data(config)
    if is_test:
        return data
    train, held_out = data.train.split(len(data.train) - 5000)
    return dataclasses.replace(data, train=train, test=held_out)


def trained(folder, name, dataset, seed, data):
    """The folder of a row's model, trained if it is not there; rows of one noise share features."""
    quiet = Reporter(verbose=0)
    config = config_of(name, dataset=dataset, seed=seed)
    noise = config.autoencoder.feature_noise
    shared, own = folder / f"features-{noise:g}-{seed}", folder / f"{name.replace(' ', '-')}-{seed}"
    if not (own / "model.keras").exists():
        train(registry.untrained(config), shared, lambda: data, quiet, stage="features")
        if not own.exists():
            shutil.copytree(shared, own)
        train(registry.untrained(config), own, lambda: data, quiet)
        for cache in (own / "features").glob("*.npy"):
            cache.unlink()
    return own


def judged(model, data, judge):
    """Figures of a model on the test images of `data`."""
    images = data.test.images
    found = figures(model, images)
    real, _ = judge(images)
    balls = squared_radii(real)
    for domain in DOMAINS:
        drawn = model.draw(len(images), 0, "single", domain)
        judged = judge(render(model, np.asarray(drawn["capsules"])))
        capsule = np.asarray(drawn["capsule"])
        metrics = scores_of(judged, real, capsule, balls)
        found |= {f"{domain}_{name}": metrics[name] for name in FIGURES}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--test", action="store_true", help="measure on the test images")
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    args = parser.parse_args()
    folder = args.folder / args.dataset / ("test" if args.test else "held_out")
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "agreement.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in () if args.table else args.seeds:
        data = images_of(config_of("default", dataset=args.dataset, seed=seed), args.test)
        judge = evaluation_classifier(data.train)
        for name in args.rows:
            config, found = config_of(name), done.setdefault(name, {})
            if str(seed) in found and is_of(found[str(seed)]["sections"], config):
                continue
            model = load_model(trained(folder, name, args.dataset, seed, data))
            sections = {key: config.to_dict()[key] for key in config.parts}
            found[str(seed)] = {**judged(model, data, judge), "sections": sections}
            kept.write_text(json.dumps(done, indent=1) + "\n")
            shown = {k: round(v, 4) for k, v in found[str(seed)].items() if isinstance(v, float)}
            print(f"{args.dataset}, seed {seed}, {name}: {shown}", flush=True)
    for title, columns in TABLES.items():
        print(f"\n{args.dataset}, {title}:\n\n{table(done, args.rows, args.seeds, columns)}")


if __name__ == "__main__":
    main()
