"""The ladder from the paper's plain form to the default: the worth of each departure.

A departure is a group of settings in which the preset `generation`, the default, differs from
`paper`; their values are read from the two presets. Rungs add departures to the plain form one
after the other, until it is the default. Then each is left out of the default. Then come the start
of the experts without training, routing, chains of three steps, and what might be a better default.

All rows train the whole model on the same 12,000 training images, with as many steps of as many
images (`EQUAL`). With --all-images they train on all but the held-out ones, as long as their preset
does, and rows have a file of their own. The last 5,000 training images are held out. 5,000 draws of
single capsules of each domain are compared with them by a classifier that saw the other 55,000:
`prior_...` are draws of a plain Gaussian, the others, without a prefix, of the domain `posterior`.
`most_won` is the share of held-out images that one capsule wins. `winners` and `change` say what
the agreement does there, `experts` how many carry an image, and the errors are those of primary
capsules (see `agreement.py`). `cpu_seconds` is the processor's time, all threads together. Rows of
one seed whose autoencoder has the same settings share it; its time counts for each. Rows that were
made are kept.

Usage: python benchmarks/research/ladder.py FOLDER [--dataset NAME] [--rows NAME ...]
           [--seeds N ...] [--all-images] [--table]
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import agreement
import keras
import numpy as np
from _cells import table
from _kept import is_of
from plain_form import IMAGES, autoencoder_of, config_of, sections_of

import keras_capsule_poe as kcp
from keras_capsule_poe import registry
from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.data import ImageData, ImageSet, load_images
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.models.base import features

PLAIN, DEFAULT = "paper", "generation"
HELD_OUT, MEASURED = 5_000, 2_000
# Three times through the images for encoder and decoder each. What starts from noise needs steps
# more than it needs images.
EQUAL = {
    f"{section}.{name}": value
    for section in ("encoder", "decoder")
    for name, value in {"batch_size": 32, "epochs": None, "steps": 3 * IMAGES // 32}.items()
}
# Rates and lengths come with the departure that asks for them.
DEPARTURES = {
    "centring": (
        "primary.center primary.target_length encoder.learning_rate encoder.momentum "
        "encoder.weight_decay"
    ),
    "competition": "encoder.softmax_over encoder.coefficient_sum encoder.activation_prior_weight",
    "cluster start": "encoder.initializer",
    "whitening": "encoder.whitening decoder.offset",
    "load balancing": "encoder.load_balancing",
    "conditional decoder": (
        "decoder.conditional decoder.feature_scale decoder.learning_rate decoder.momentum "
        "decoder.weight_decay"
    ),
    "shared capsules": "decoder.shared_capsules",
}
MORE = {
    # The experts stay as they start: one step of no size.
    "default, start alone": (
        DEFAULT,
        {"encoder.steps": 1, "encoder.learning_rate": 1e-12, "encoder.load_balancing": 0.0},
    ),
    "default, no routing": (DEFAULT, {"encoder.routing_iterations": 1}),
    "plain form, no routing": (
        PLAIN,
        {"encoder.routing_iterations": 1, "decoder.routing_iterations": 1},
    ),
    "default, CD-3": (DEFAULT, {"encoder.cd_steps": 3}),
}
# What might be a better default.
TRIED = {
    "more agreement": (
        DEFAULT,
        {"encoder.agreement_scale": 1.0, "encoder.activation_prior_weight": 1.0},
    ),
    "detail": ("detail", {}),
}
WANTED = "confident FID precision recall coverage purity".split()
TABLES = {
    "prior": [f"prior_{name}" for name in WANTED],
    "posterior": WANTED,
    "codes": "most_won winners change experts whole_code one_capsule cpu_seconds".split(),
}


def rows():
    """Name to (preset, settings beside its own), in the order of the ladder."""
    plain, default = _values(PLAIN), _values(DEFAULT)
    groups = {name: names.split() for name, names in DEPARTURES.items()}
    found, climbed = {"plain form": (PLAIN, {})}, {}
    for name, group in list(groups.items())[:-1]:
        climbed |= {setting: default[setting] for setting in group}
        found[f"+ {name}"] = (PLAIN, _without_idle(PLAIN, climbed))
    # With the last departure it is the default, and without that it is the last rung.
    found["default"] = (DEFAULT, {})
    for name, group in list(groups.items())[:-1]:
        if name == "cluster start":  # a choice of ours and no departure: the paper names no start
            continue
        without = {setting: plain[setting] for setting in group}
        found[f"default, no {name}"] = (DEFAULT, _without_idle(DEFAULT, without))
    return found | MORE | TRIED


def settings_of(settings, all_images=False):
    """Settings of a row beside those of its preset."""
    return settings if all_images else EQUAL | settings


def _values(preset):
    parts = registry.settings("capsules", preset).parts
    return {
        f"{part}.{name}": value
        for part, settings in parts.items()
        for name, value in settings.model_dump().items()
    }


def _without_idle(preset, settings):
    """Less those that mean nothing beside the others, such as a prior where all inputs share."""
    config = config_of(preset, settings)
    idle = config.idle()
    return {name: value for name, value in settings.items() if name not in idle}


def current(done, rows, all_images=False):
    """Of what was measured, what is of these rows: one whose settings changed is made anew."""
    return {
        name: {
            seed: figures
            for seed, figures in done.get(name, {}).items()
            if is_of(figures["sections"], config_of(preset, settings_of(settings, all_images)))
        }
        for name, (preset, settings) in rows.items()
    }


def autoencoder_for(config, dataset, images, folder):
    """A trained autoencoder of these settings, kept in a file; the processor's seconds it took."""
    settings = json.dumps([config.seed, len(images), config.autoencoder.model_dump()])
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    path = folder / f"{dataset}-autoencoder-{digest}.keras"
    if not path.exists():
        begun = time.process_time()
        model = autoencoder_of(config, images)
        path.with_suffix(".json").write_text(json.dumps(time.process_time() - begun))
        model.save(path)
    seconds = json.loads(path.with_suffix(".json").read_text())
    return features.as_float32(keras.models.load_model(path, compile=False)), seconds


def measured(preset, settings, seed, dataset, data, images, folder):
    """Figures of a model of settings beside those of a preset, and all its settings."""
    config = config_of(preset, settings, seed)
    autoencoder, seconds = autoencoder_for(config, dataset, images, folder)
    begun = time.process_time()
    model = agreement.fitted(preset, settings, autoencoder, images, seed)
    seconds += time.process_time() - begun
    found = {}
    for prefix, domain in (("prior_", "prior"), ("", "posterior")):
        drawn = model.sample(HELD_OUT, seed=seed, domain=domain)
        if np.isfinite(drawn.images).all():
            scores = kcp.evaluation.score_images(drawn.images, data, drawn.index)
            found |= {f"{prefix}{name}": scores[name] for name in WANTED}
    seen = data.test.images[:MEASURED]
    won = np.bincount(winners(map_batches(lambda x: model.code(x)["experts"], seen)))
    return {
        **found,
        **agreement.figures(model, seen),
        "most_won": float(won.max() / len(seen)),
        "cpu_seconds": seconds,
        "sections": sections_of(config),
    }


def arguments(names):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--all-images", action="store_true", help="all but the held-out ones")
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    return parser.parse_args()


def main():
    every = rows()
    args = arguments(list(every))
    args.folder.mkdir(parents=True, exist_ok=True)
    kept = args.folder / f"{args.dataset}{'-all' if args.all_images else ''}.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    done = current(done, every, args.all_images)
    train = load_images(args.dataset).train
    parts = slice(None, -HELD_OUT), slice(-HELD_OUT, None)
    data = ImageData(*(ImageSet(train.images[part], train.labels[part]) for part in parts))
    images = data.train.images[: None if args.all_images else IMAGES]
    for seed in [] if args.table else args.seeds:
        for name in args.rows:
            if str(seed) in done[name]:
                continue
            preset, settings = every[name]
            settings = settings_of(settings, args.all_images)
            found = measured(preset, settings, seed, args.dataset, data, images, args.folder)
            done[name][str(seed)] = found
            there = {name: seeds for name, seeds in done.items() if seeds}
            kept.write_text(json.dumps(there, indent=1) + "\n")
            print(f"{args.dataset}, seed {seed}, {name}: {found}", flush=True)
    for title, columns in TABLES.items():
        print(f"\n{args.dataset}, {title}:\n\n{table(done, args.rows, args.seeds, columns)}")


if __name__ == "__main__":
    main()
