"""The effect of routing by agreement in a product of expert capsules, on held-out images.

The rows `default` measure the pretrained model. The other rows train an encoder and a decoder on
its features of the first 12,000 training images. All are measured on the last 1,000 training
images, which no row was trained on. Columns:

- `winners`: share of images whose longest capsule changes when routing ignores the agreement;
- `change`: by how much the pre-activations z change then, |z - z'|^2 / |z|^2;
- `experts`: experts that carry an image, the mean of exp(entropy of the shares of -F);
- `lengths`: mean lengths of the longest capsules of an image, the longest first;
- `whole_code`, `experts_alone`, `one_capsule`, `without_agreement`: relative error of primary
  capsules that are decoded from the whole code, from the experts with the mean of the shared
  capsules, from the longest expert, and from the experts without agreement.

Rows that were made are kept.

Usage: python benchmarks/research/agreement.py FOLDER [--dataset NAME] [--rows NAME ...]
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from _kept import is_of
from plain_form import IMAGES, config_of, sections_of

import keras_capsule_poe as kcp
from keras_capsule_poe.cli.options import load_model
from keras_capsule_poe.core.labels import winner_alone
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.metrics import relative_error

PRETRAINED = Path(__file__).resolve().parents[2] / "saved_models" / "pretrained"
# A factor on agreements that leaves nothing of them.
NONE = 1e-9
HELD_OUT, SHOWN = 1_000, 4
# The preset of a row, and settings beside its own.
ROWS = {
    "default": ("generation", {}),
    "plain form": ("paper", {}),
}


def without(experts, **changed):
    """A copy of a layer of experts with changed arguments; by default without agreement."""
    changed = changed or {"agreement_scale": NONE}
    copy = type(experts).from_config({**experts.get_config(), **changed})
    inputs, _, _, dim = experts.kernel.shape
    copy.build((None, inputs, dim))
    copy.set_weights(experts.get_weights())
    return copy


def carrying(energy):
    """Experts that carry each image, (N,), from the parts of -F (N, J).

    >>> carrying(np.array([[2.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])).round(6).tolist()
    [1.0, 2.0]
    """
    shares = energy / energy.sum(axis=1, keepdims=True)
    logs = np.log(np.where(shares > 0, shares, 1))
    return np.exp(-(shares * logs).sum(axis=1))


def fitted(preset, settings, autoencoder, images, seed=0):
    """A model of settings beside those of a preset, trained on the features of images."""
    model = kcp.ProductOfExpertCapsules(preset=preset, seed=seed, autoencoder=autoencoder)
    model.settings.update(settings)
    model.fit(images, verbose=0)
    return model


def figures(model, images):
    """What the agreement does for images (N, H, W, C)."""
    experts = model.encoder.experts
    x = map_batches(model.to_visible, images)
    z, other = (
        map_batches(lambda x, e=each: e.route(x).z, x) for each in (experts, without(experts))
    )
    squares, others = (np.square(each.astype("float64")).sum(axis=-1) for each in (z, other))
    codes, plain = (map_batches(model.encoder.whitening, each) for each in (z, other))
    decoded = {
        "experts_alone": (codes,),
        "one_capsule": (map_batches(winner_alone, codes),),
        "without_agreement": (plain,),
    }
    shared = model.decoder.shared and map_batches(model.decoder.code_shared, (x, codes))
    decoded["whole_code"] = (codes,) if shared is None else (codes, shared)
    lengths = -np.sort(-squares / (1 + squares), axis=1)
    return {
        "images": len(images),
        "winners": float((squares.argmax(axis=1) != others.argmax(axis=1)).mean()),
        "change": float(np.square(z - other, dtype="float64").sum() / squares.sum()),
        "experts": float(carrying(np.log1p(squares)).mean()),
        "lengths": lengths[:, :SHOWN].mean(axis=0).tolist(),
        **{
            name: float(relative_error(map_batches(model.decode_visible, code), x))
            for name, code in decoded.items()
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    kept = args.folder / f"{args.dataset}.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    images = load_images(args.dataset).train.images
    pretrained = load_model(PRETRAINED / args.dataset)
    for name in args.rows:
        config = config_of(*ROWS[name])
        if name in done and is_of(done[name]["sections"], config):
            continue
        if name == "default":
            model = pretrained
        else:
            model = fitted(*ROWS[name], pretrained.autoencoder, images[:IMAGES])
        found = figures(model, images[-HELD_OUT:])
        done[name] = {**found, "sections": sections_of(config)}
        kept.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{args.dataset}, {name}: {found}", flush=True)


if __name__ == "__main__":
    main()
