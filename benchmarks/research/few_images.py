"""What few images lose by fewer steps: bundled digits with all of `steps`, and by default.

1,200 images train, 300 others of the training images judge. Capsules and neurons draw 300 images
of single capsules, domain `posterior`, compared with the held-out ones by a classifier that takes
no part. Of a Boltzmann machine, `nats` is the mean log-likelihood of held-out images, by annealing
from independent neurons; annealing back from the machine differs by `width`. `cpu_seconds` are the
processor's time of all threads together.

Usage: python benchmarks/research/few_images.py FILE [--models NAME ...] [--kinds X ...]
           [--seeds N ...] [--table]
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from _cells import table

import keras_capsule_poe as kcp
from keras_capsule_poe import registry
from keras_capsule_poe.data import ImageData, ImageSet, load_images

HELD_OUT = 300
KINDS = "all steps", "default"
DRAWS = "confident FID precision recall coverage purity".split()
TEMPERATURES, CHAINS = 3000, 100
MODELS = {
    "capsules": kcp.ProductOfExpertCapsules,
    "neurons": kcp.ProductOfExpertNeurons,
    "rbm": kcp.ImageBoltzmannMachine,
}


def drawn(model, data, seed):
    """Scores of draws of single capsules."""
    samples = model.sample(len(data.test), seed=seed, domain="posterior")
    scores = kcp.evaluation.score_images(samples.images, data, samples.index)
    return {name: scores[name] for name in DRAWS}


def likelihood(model, data, seed):
    """Mean log-likelihood of held-out images, and the width of the bracket of log Z."""
    density = model.density(data.train.images, seed)
    bracket = density.bracket(TEMPERATURES, CHAINS, seed)
    weights = density.log_weights(data.test.images)
    return {"nats": float(np.mean(weights) - bracket.forward), "width": float(bracket.width)}


def measured(name, kind, seed, data):
    """Figures of a model that takes all steps that its settings name, or those of the default."""
    usual, model = registry.settings(name), MODELS[name](seed=seed)
    for stage in usual.stages:
        part = usual.trained(stage)
        if part is not None and kind == "all steps":
            batches = -(-len(data.train) // part.batch_size)
            model.settings.set(f"{stage}.epochs", round(part.steps / batches))
    begun, cpu = time.perf_counter(), time.process_time()
    model.fit(data.train.images, verbose=0)
    return {
        **(likelihood if name == "rbm" else drawn)(model, data, seed),
        "steps": sum(model.settings.steps(len(data.train)).values()),
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": time.process_time() - cpu,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    args = parser.parse_args()
    done = json.loads(args.file.read_text()) if args.file.exists() else {}
    train = load_images("digits").train
    parts = slice(None, -HELD_OUT), slice(-HELD_OUT, None)
    data = ImageData(*(ImageSet(train.images[part], train.labels[part]) for part in parts))
    names = [f"{model}, {kind}" for model in args.models for kind in args.kinds]
    for seed in [] if args.table else args.seeds:
        for name in names:
            row = done.setdefault(name, {})
            if str(seed) in row:
                continue
            model, kind = name.split(", ")
            row[str(seed)] = found = measured(model, kind, seed, data)
            args.file.write_text(json.dumps(done, indent=1) + "\n")
            print(f"{name}, seed {seed}: {found}", flush=True)
    columns = [*DRAWS, "nats", "width", "steps", "seconds", "cpu_seconds"]
    print(table(done, names, args.seeds, columns))


if __name__ == "__main__":
    main()
