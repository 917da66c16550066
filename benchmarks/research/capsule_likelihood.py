"""What a trained capsule model says of images: log Z and nats an image, over each base measure.

P(x) = P_0(x) w(x)/Z, with w the product of experts, as `capspoe likelihood` measures it for one
base. For each base measure P_0, and for fixed coefficients (the mean routing of training images)
and routed ones, this prints log Z/Z_0 from both sides, the gain of test images over P_0 in nats,
and the time that this took. `sd` is the spread of log w over the base; `tv` the total variation
between P and P_0, which is what a sampler of P could show; `cosine` that of Algorithm 1's update
to the likelihood's gradient, both on the same images, beside `repeat`, that of two estimates of
this gradient from different draws: the noise's ceiling.

Usage: python benchmarks/research/capsule_likelihood.py MODEL_DIR
           [--data-dir DIR | --images FILE.npy] [--limit N] [--base NAME ...] [--chains N]
           [--temperatures K] [--blocks M] [--json FILE]
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
from keras import ops
from theory.importance import importance_gradient

from keras_capsule_poe.cli.options import load_model, load_run_data
from keras_capsule_poe.functions import contrastive_divergence
from keras_capsule_poe.models.capsule_poe import product

COLUMNS = (
    "base coefficients forward forward_error reverse reverse_error width gain gain_error "
    "data_log_w sd tv seconds cosine repeat"
).split()
# Images whose updates are compared, and base draws that stand for the model's term.
COMPARED, DRAWN = 256, 512


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--images", type=Path, help="uint8 (N, H, W, C), .npy; half are fitted to")
    parser.add_argument("--data-dir", help="where the images of the run are")
    parser.add_argument("--limit", type=int, default=6000, help="images of a kind, at most")
    parser.add_argument("--base", nargs="+", choices=product.BASES, default=product.BASES)
    parser.add_argument("--chains", type=int, default=512)
    parser.add_argument("--temperatures", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=product.BLOCKS)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def visible(model, args):
    """Squashed primary capsules (N, I, D) of images to fit to and of others."""
    if args.images:
        images = np.load(args.images)
        parts = images[::2][: args.limit], images[1::2][: args.limit]
    else:
        data = load_run_data(args.model_dir, data_dir=args.data_dir)
        parts = [part.head(args.limit).images for part in (data.train, data.test)]
    return [product.visible(model, part) for part in parts]


def cosines(model, x, measure):
    """Of Algorithm 1's update to the likelihood's gradient, and of that to another of its kind."""
    rows, router, units = measure.coefficients, measure.router, model.encoder.experts.units
    how = {"routing": router}
    if rows is not router:
        how = {"coefficients": ops.broadcast_to(rows, (len(x), *rows.shape))}
    update = contrastive_divergence(router.maps, x, **how, hidden=units, visible=units).gradient
    gradients = [
        importance_gradient(
            router.maps, x, measure.base.draw(DRAWN, seed=seed), measure.coefficients, units
        ).gradient
        for seed in (2, 3)
    ]
    unit = [np.ravel(part) / np.linalg.norm(part) for part in (update, *gradients)]
    return {"cosine": unit[0] @ unit[1], "repeat": unit[1] @ unit[2]}


def row(model, fitted, x, base, routing, args):
    """One line of the table."""
    measure = product.CapsuleDensity(model, fitted, base, routing, args.blocks)
    values = measure.log_weights_of(x)
    begun = time.perf_counter()
    found, plain = measure.annealed(args.temperatures, args.chains)
    seconds = time.perf_counter() - begun
    log_z = (found.forward + found.reverse) / 2
    error = max(found.forward_error, found.reverse_error, abs(found.width) / 2)
    return {
        "base": base,
        "coefficients": routing,
        **found._asdict(),
        "width": found.width,
        "gain": values.mean() - log_z,
        "gain_error": np.hypot(values.std() / np.sqrt(len(values)), error),
        "data_log_w": values.mean(),
        "sd": plain.std(),
        "tv": np.abs(np.exp(plain - log_z) - 1).mean() / 2,
        "seconds": seconds,
        **cosines(model, x[:COMPARED], measure),
    }


def main():
    args = arguments()
    model = load_model(args.model_dir)
    fitted, x = visible(model, args)
    rows = []
    for base in args.base:
        print(f"{base}:", flush=True)
        for routing in product.ROUTINGS:
            rows.append(row(model, fitted, x, base, routing, args))
            print("  " + "  ".join(_shown(c, rows[-1][c]) for c in COLUMNS[1:]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1, default=float) + "\n")


def _shown(name, value):
    return value if isinstance(value, str) else f"{name} {value:.4g}"


if __name__ == "__main__":
    main()
