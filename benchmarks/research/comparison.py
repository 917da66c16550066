"""What trained models of several families draw, and what baselines draw.

Each kind of draw is judged against as many test images by a classifier of the data set. The
autoencoder, real images and the baselines, which need features, are of the first model. The
variational autoencoder of features trains for as long as the capsules did; the convolutional one,
of pixels, trains for as long as the whole model did, and has as many parameters as all of it. Rows
that FILE has are not made again.

Usage: python benchmarks/research/comparison.py NAME=MODEL_DIR [NAME=MODEL_DIR ...]
           [--samples N] [--json FILE]
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import vae

from keras_capsule_poe.cli.measure import own_seconds
from keras_capsule_poe.cli.options import load_model, load_run_data
from keras_capsule_poe.evaluation.baselines import baseline_set
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.generative import image_sources
from keras_capsule_poe.evaluation.scores import scores_of

DRAWS = ("prior", "posterior", "joint")
BASELINES = {
    "real": "real",
    "autoencoder": "autoencoder",
    "gaussian_mixture": "mixture of 50 Gaussians",
    "variational_autoencoder": "VAE of features",
    "boltzmann_machine": "Boltzmann machine of features",
    "full_gaussian": "full Gaussian",
    "diagonal_gaussian": "diagonal Gaussian",
}


def sources(models, folders, data, samples):
    """Functions by row name that return images and the capsules that drew them, or None."""
    first = next(iter(models))
    baselines = baseline_set("trained", models[first], vae_seconds=own_seconds(folders[first]))
    drawn = image_sources(models[first], data, samples, samples, 0, baselines)
    found = {title: drawn[name] for name, title in BASELINES.items()}
    for name, draw in convolutional(models[first], folders[first], data, samples).items():
        found[f"convolutional VAE, {name}"] = draw
    for name, model in models.items():
        drawn = image_sources(model, data, samples, samples, 0)
        found |= {f"{name}, {kind}": drawn[kind] for kind in DRAWS if kind in drawn}
    return found


def convolutional(model, folder, data, samples):
    """Functions by name that train a convolutional VAE for a kind of draws and draw."""
    images, seconds, known = data.train.images, vae.training_seconds(folder), {}

    def draw(name):
        settings = vae.SETTINGS[name]
        key = tuple(settings.values())
        if key not in known:
            fitted, about = vae.fitted(images, model.count_params(), seconds, **settings)
            print(f"convolutional VAE, {name}: {about}", flush=True)
            known[key] = vae.draws(fitted, images, samples, settings["code"])
        return known[key][name], None

    return {name: lambda name=name: draw(name) for name in vae.SETTINGS}


def scored(judge, real, images, capsule):
    """Scores of images that are compared with the features `real` of test images."""
    return scores_of(judge(images), real, capsule)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL_DIR")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    folders = {name: Path(path) for name, _, path in (text.partition("=") for text in args.models)}
    data = load_run_data(next(iter(folders.values())))
    models = {name: load_model(folder) for name, folder in folders.items()}
    judge = evaluation_classifier(data.train)
    real, _ = judge(data.test.images[: args.samples])
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    rows = {}
    for name, draw in sources(models, folders, data, args.samples).items():
        rows[name] = kept[name] if name in kept else scored(judge, real, *draw())
        shown = (f"{key} {value:.3g}" for key, value in rows[name].items())
        print(f"{name}:", *shown, flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows | kept | rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
