"""What contrastive divergence adds to the start of the maps, in codes and draws.

Each row is a whole training by `capspoe train`'s own settings on all training images but the last
1,000, measured on the test images, or with --held-out on those 1,000. `start alone` trains the
decoder after the start of the experts, without contrastive divergence: what training adds is the
difference to it. `start from images` takes 16 images of a cluster in place of its principal
directions. Columns: `whole_code`, the relative error of primary capsules decoded from whole
codes; and for as many draws of single capsules as there are test images `recognised` (a classifier
is sure of them), `frechet`, `precision`, `recall`, `coverage` and `purity`. `prior` is the plain
Gaussian of R^E, `posterior` the mixture fitted to codes of training. Rows that were made are kept.

Usage: python benchmarks/research/start.py FOLDER [--dataset NAME] [--rows NAME ...]
           [--seeds N ...] [--held-out] [--table] [--pictures FOLDER]
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

from keras_capsule_poe import registry
from keras_capsule_poe.cli.options import load_model
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.feature_metrics import squared_radii
from keras_capsule_poe.evaluation.scores import scores_of
from keras_capsule_poe.figures import image_figure
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.plotting import render
from keras_capsule_poe.training import Reporter, load_data, train

# The experts stay as they start: one step of no size, and no load balancing.
ALONE = {"encoder.steps": 1, "encoder.learning_rate": 1e-12, "encoder.load_balancing": 0.0}
# The default of these rows is a former one.
BEFORE = {
    "decoder.activity": 2.0,
    "decoder.routing_iterations": 1,
    "decoder.shared_capsules": 0,
}
ROWS = {
    "default": BEFORE,
    "start from images": {**BEFORE, "encoder.initializer": "clusters"},
    "start alone": {**BEFORE, **ALONE},
}
DOMAINS = ("prior", "posterior")
FIGURES = "recognised frechet precision recall coverage purity".split()
TABLES = {
    "codes": ["whole_code"],
    **{domain: [f"{domain}_{name}" for name in FIGURES] for domain in DOMAINS},
}
SHOWN = 12


def config_of(name, **run):
    """The settings of a row; `run` are its data set and seed."""
    config = registry.settings("capsules", **run)
    config.update(ROWS[name])
    return config


def trained(folder, name, dataset, seed, data):
    """The folder of a row's model, trained where it is not yet."""
    quiet = Reporter(verbose=0)
    shared, own = (folder / f"{part}-{seed}" for part in ("features", name.replace(" ", "-")))
    if not (own / "model.keras").exists():
        config = config_of(name, dataset=dataset, seed=seed)
        train(
            config_of("default", dataset=dataset, seed=seed),
            shared,
            lambda: data,
            quiet,
            stage="features",
        )
        if not own.exists():
            shutil.copytree(shared, own)
        train(registry.untrained(config), own, lambda: data, quiet)
        # Large, and made anew by the stage `features`.
        for cache in (own / "features").glob("*.npy"):
            cache.unlink()
    return own


def judged(model, data, judge):
    """Figures of a model on the test images of `data`."""
    images = data.test.images
    x = map_batches(model.to_visible, images)
    codes = map_batches(lambda x: model.encoder(x), x)
    decoded = map_batches(model.decode_visible, codes)
    real, _ = judge(images)
    balls = squared_radii(real)
    figures = {"whole_code": float(relative_error(decoded, x))}
    for domain in DOMAINS:
        drawn = model.draw(len(images), 0, "single", domain)
        judged = judge(render(model, np.asarray(drawn["capsules"])))
        found = scores_of(judged, real, np.asarray(drawn["capsule"]), balls)
        figures |= {f"{domain}_{name}": found[name] for name in FIGURES}
    return figures


def strip(model, images):
    """A figure of images, and what autoencoder, code and winning capsule keep of them."""
    rows = {name: pair[0] for name, pair in model.reconstructions(to_pixels(images)).items()}
    winners = np.linalg.norm(model.encode(images).capsules, axis=-1).argmax(axis=-1)
    nearest = []
    for image, winner in zip(to_pixels(images), winners):
        draws = np.asarray(model.draw_capsule(int(winner), 500, 0, "posterior")["capsules"])
        draws = np.asarray(render(model, draws))
        nearest.append(draws[np.square(draws - image).sum(axis=(1, 2, 3)).argmin()])
    shown = {
        "test image": images,
        "autoencoder": rows["autoencoder"],
        "whole code": rows["whole_code"],
        "nearest of 500 draws": nearest,
    }
    title = "Test images, decoded from features, from codes, and drawn by the winning capsule"
    return image_figure([(list(shown.values()), list(shown), None, None)], title)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    parser.add_argument(
        "--pictures", type=Path, help="save figures of images and codes of the first seed there"
    )
    args = parser.parse_args()
    folder = args.folder / args.dataset.replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder.with_suffix(".held_out.json" if args.held_out else ".json")
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in () if args.table else args.seeds:
        data = load_data(config_of("default", dataset=args.dataset, seed=seed))
        judge = evaluation_classifier(data.train)
        seen = dataclasses.replace(data, test=data.held_out) if args.held_out else data
        for name in args.rows:
            config = config_of(name)
            row = done.setdefault(name, {})
            is_kept = str(seed) in row and is_of(row[str(seed)]["sections"], config)
            if is_kept and not args.pictures:
                continue
            own = trained(folder, name, args.dataset, seed, data)
            model = load_model(own)
            if not is_kept:
                sections = {key: config.to_dict()[key] for key in config.parts}
                row[str(seed)] = {**judged(model, seen, judge), "sections": sections}
                kept.write_text(json.dumps(done, indent=1) + "\n")
                print(f"{args.dataset}, seed {seed}, {name}: done", flush=True)
            if args.pictures and seed == args.seeds[0]:
                args.pictures.mkdir(parents=True, exist_ok=True)
                picture = args.pictures / f"{folder.name}-{name.replace(' ', '-')}.png"
                strip(model, seen.test.images[:SHOWN]).savefig(picture, dpi=100)
    for title, columns in TABLES.items():
        print(f"\n{args.dataset}, {title}:\n\n{table(done, args.rows, args.seeds, columns)}")


if __name__ == "__main__":
    main()
