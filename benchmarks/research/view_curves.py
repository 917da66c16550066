"""How variants of both networks of `viewpoints.py` do on novel views, without any test image.

All images of one solid of each kind are held out (solid SEED modulo five), of familiar and of
novel views; every variant is trained on the familiar views of the others, and after each epoch
both kinds of held-out images are named. So settings can be chosen by what the comparison is
about, from training images alone. Printed is the novel error after the first epoch that names a
given share of the familiar images rightly. What was measured is kept in FOLDER; with other
--epochs or --until it is measured anew.

In full: python benchmarks/research/view_curves.py build/view_curves
Usage: python benchmarks/research/view_curves.py FOLDER [--split NAME ...] [--seeds N ...]
           [--variants NAME ...] [--epochs N] [--until A] [--table]
"""

import argparse
import itertools
import json
import time

import _classifiers as classifiers
import keras
import numpy as np
import viewpoints
from _shares import table

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data import load_images, split_views
from keras_capsule_poe.data.image_set import FAMILIAR
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.models.base.networks import AUGMENTATIONS, examples, optimizer
from keras_capsule_poe.models.matrix_capsules.model import MatrixCapsNet
from keras_capsule_poe.training.optimizers import averaged

# The recipe of that name, 316,650 parameters, in the place of `small`, which has two iterations.
PAPER = {**MatrixCapsNet.SETTINGS.PRESETS["paper"].settings["matrix"], "routing_iterations": 3}
# Settings of the section, beside those of `viewpoints.py`.
VARIANTS = {
    "capsules": {},
    "iterations 1": {"routing_iterations": 1},
    "iterations 3": {"routing_iterations": 3},
    "no coordinates": {"coordinates": False},
    "temperature 1": {"assignment_temperature": 1.0},
    "temperature 16": {"assignment_temperature": 16.0},
    "floor 0.01": {"variance_floor": 0.01},
    "floor 1": {"variance_floor": 1.0},
    "cross-entropy": {"loss": "cross-entropy"},
    "muon": {"optimizer": "muon", "learning_rate": 0.005},
    "rate 0.005": {"learning_rate": 0.005},
    "cosine": {"learning_rate_schedule": "cosine", "epochs": 12},
    "inverse temperature 3": {"inverse_temperature": 3.0},
    "decoder": {"decoder": "dense"},
    "16 primary types": {"primary_types": 16},
    "128 filters": {"filters": 128},
    "paper": PAPER,
    "no coordinates, sharp": {
        "coordinates": False,
        "assignment_temperature": 1.0,
        "variance_floor": 0.01,
    },
    "no coordinates, iterations 3": {"coordinates": False, "routing_iterations": 3},
    "no coordinates, 128 filters": {"coordinates": False, "filters": 128},
    "no coordinates, classes alone": {"coordinates": False, "inner_routing_iterations": 1},
    "no coordinates, cross-entropy": {"coordinates": False, "loss": "cross-entropy"},
    "cnn": {"network": "cnn"},
    "cnn paper": {"network": "cnn", **PAPER},
    "cnn rate 0.003": {"network": "cnn", "learning_rate": 0.003},
    "cnn rate 0.0003": {"network": "cnn", "learning_rate": 0.0003},
    "cnn muon": {"network": "cnn", "optimizer": "muon", "learning_rate": 0.002},
    "cnn cosine": {"network": "cnn", "learning_rate_schedule": "cosine", "epochs": 24},
}


def load(split, solid):
    """Training images, an `ImageSet` of familiar views; a dict of the held-out ones by view."""
    whole = load_images("viewpoints")
    instances = np.unique(whole.train.extras["instance"])
    is_held = whole.train.extras["instance"] == instances[solid % len(instances)]
    label, familiar = FAMILIAR[split]
    held = whole.train.take(np.flatnonzero(is_held))
    is_familiar = np.isin(held.extras[label], familiar)
    data = split_views(whole, split)
    kept = data.train.extras["instance"] != instances[solid % len(instances)]
    parts = (held.take(np.flatnonzero(x)) for x in (is_familiar, ~is_familiar))
    return data.train.take(np.flatnonzero(kept)), dict(zip(viewpoints.VIEWS, parts))


def curve(settings, split, seed, epochs, until):
    """Errors on held-out images by epoch, and the time of each: list of dicts."""
    args = argparse.Namespace(set=[], epochs=None, limit=None, until=until)
    config = viewpoints.config_of(
        argparse.Namespace(**vars(args), dataset="viewpoints", recipe="small"), split,
        "capsules", seed,
    )  # fmt: skip
    config.update({f"matrix.{name}": value for name, value in settings.items()})
    net, (train, held) = config.matrix, load(split, seed)
    keras.utils.set_random_seed(seed)
    model = MatrixCapsNet.of_shape(config, train.images.shape[1:])
    model.compile(optimizer(net, len(train)), jit_compile=False)
    whole, steps = net.schedule.over(len(train))
    callbacks = MatrixCapsNet.callbacks(config, model, whole * steps)
    classify = compiled(lambda images: model.classify(images)["probabilities"])
    found = []
    for epoch in range(min(epochs, whole)):
        begun = time.perf_counter()
        order = {"batch_size": net.batch_size, "seed": seed, "first_epoch": epoch}
        augment = AUGMENTATIONS[net.augmentation]
        stream = examples(train, net.classes, augment=augment, epochs=epoch + 1, **order)
        model.fit(
            stream, initial_epoch=epoch, epochs=epoch + 1, steps_per_epoch=steps, verbose=0,
            shuffle=False, callbacks=callbacks,
        )  # fmt: skip
        row = {"seconds": time.perf_counter() - begun}
        with averaged(model):
            for view, images in held.items():
                named = map_batches(classify, images.images).argmax(axis=-1)
                row[view] = float(np.mean(named != images.labels))
        found.append(row)
        print(f"  {epoch + 1}: {row}", flush=True)
        if 1 - row["familiar"] >= until:
            break
    return {"parameters": model.count_params(), "curve": found}


def row(variant, split, seed, found, until):
    """Cells of a table: at which epoch enough familiar images were named, and both errors then."""
    enough = [k for k, errors in enumerate(found["curve"]) if 1 - errors["familiar"] >= until]
    cells = [variant, split, seed, found["parameters"]]
    if not enough:
        return [*cells, None, None, None]
    errors = found["curve"][enough[0]]
    return [*cells, enough[0] + 1, *(100 * errors[view] for view in viewpoints.VIEWS)]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=classifiers.Path)
    parser.add_argument("--split", nargs="+", choices=FAMILIAR, default=list(FAMILIAR))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--until", type=float, default=0.96)
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    args = parser.parse_args(arguments)
    args.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed, variant, split in itertools.product(args.seeds, args.variants, args.split):
        name = f"{split}-{variant.replace(' ', '-')}-{seed}-{args.epochs}-{args.until}.json"
        path = args.folder / name
        if not path.exists():
            if args.table:
                continue
            print(f"{split}, {variant}, seed {seed}", flush=True)
            found = curve(VARIANTS[variant], split, seed, args.epochs, args.until)
            path.write_text(json.dumps(found, indent=1) + "\n")
        rows.append(row(variant, split, seed, json.loads(path.read_text()), args.until))
    columns = {"variant": "", "split": "", "seed": "", "parameters": ",", "epochs": ""}
    print(table({**columns, "familiar error %": ".2f", "novel error %": ".2f"}, rows))


if __name__ == "__main__":
    main()
