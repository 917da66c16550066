"""What might be a better default: each row trains the whole model, judged on held-out images.

The last 5,000 training images are held out; the model, and the classifier that judges, see the
others. 5,000 draws of single capsules, domain `posterior`, are compared with the held-out images.
`winners` and `change` say what the agreement does there, `experts` how many carry an image, and the
errors are those of primary capsules (see `agreement.py`). A row "default, no X" has the settings of
the preset `paper` for one departure. `cpu_seconds` is the processor's time, all threads together.
Rows of one seed whose autoencoder has the same settings share it; its time counts for each. Rows
that were made are kept.

Usage: python benchmarks/research/candidates.py FOLDER [--dataset NAME] [--rows NAME ...]
           [--seeds N ...] [--table]
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
from _cells import table
from _kept import is_of
from ladder import without_departures
from plain_form import autoencoder_of, config_of, sections_of

import keras_capsule_poe as kcp
from keras_capsule_poe.data import ImageData, ImageSet, load_images
from keras_capsule_poe.models.base import features

HELD_OUT, MEASURED = 5_000, 2_000
DETAIL = {"encoder.capsules": 40, "decoder.shared_capsules": 16}
ALONE = {"decoder.shared_capsules": 0}
# Settings beside those of the default.
ROWS = {
    "default": {},
    "40 capsules, 16 shared": DETAIL,
    "default, no shared capsules": ALONE,
    **without_departures({}),
    "more agreement": {"encoder.agreement_scale": 1.0, "encoder.activation_prior_weight": 1.0},
    "feature noise": {"autoencoder.feature_noise": 0.5},
    "50 Gaussians": {"codes.components": 50},
}
DRAWS = "confident FID precision recall coverage purity".split()
COLUMNS = [*DRAWS, *"winners change experts whole_code one_capsule cpu_seconds".split()]


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


def measured(settings, seed, dataset, data, folder):
    """Figures of a model of settings beside those of the default, and all its settings."""
    config = config_of("generation", settings, seed)
    autoencoder, seconds = autoencoder_for(config, dataset, data.train.images, folder)
    model = kcp.ProductOfExpertCapsules(seed=seed, autoencoder=autoencoder)
    rest = {name: settings[name] for name in settings if not name.startswith("autoencoder.")}
    model.settings.update(rest)
    begun = time.process_time()
    model.fit(data.train.images, verbose=0)
    seconds += time.process_time() - begun
    drawn = model.sample(HELD_OUT, seed=seed, domain="posterior")
    scores = kcp.evaluation.score_images(drawn.images, data, drawn.index)
    return {
        **{name: scores[name] for name in DRAWS},
        **agreement.figures(model, data.test.images[:MEASURED]),
        "cpu_seconds": seconds,
        "sections": sections_of(config),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    kept = args.folder / f"{args.dataset}.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    train = load_images(args.dataset).train
    parts = slice(None, -HELD_OUT), slice(-HELD_OUT, None)
    data = ImageData(*(ImageSet(train.images[part], train.labels[part]) for part in parts))
    for seed in [] if args.table else args.seeds:
        for name in args.rows:
            row, config = done.setdefault(name, {}), config_of("generation", ROWS[name], seed)
            if str(seed) in row and is_of(row[str(seed)]["sections"], config):
                continue
            found = row[str(seed)] = measured(ROWS[name], seed, args.dataset, data, args.folder)
            kept.write_text(json.dumps(done, indent=1) + "\n")
            print(f"{args.dataset}, seed {seed}, {name}: {found}", flush=True)
    print(table(done, args.rows, args.seeds, COLUMNS))


if __name__ == "__main__":
    main()
