"""What a trained capsule model says of images: log Z and nats an image, over each base measure.

P(x) = P_0(x) w(x)/Z, with w the product of experts. For each base measure P_0, and for fixed
coefficients (the mean routing of training images) and routed ones, it prints log Z/Z_0 from both
sides, the gain of test images over P_0 in nats, and the time that this took. `sd` is the spread of
log w over the base; `tv` the total variation between P and P_0, which is what a sampler of P could
show; `cosine` that of Algorithm 1's update to the likelihood's gradient, both on the same images,
beside `repeat`, that of two estimates of this gradient from different draws: the noise's ceiling.

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

import numpy as np
from keras import ops

from keras_capsule_poe.cli.models import load_model, load_run_data
from keras_capsule_poe.functions import (
    CentredGaussian,
    Router,
    SquashedGaussian,
    UniformBall,
    block_resampling,
    contrastive_divergence,
    elliptical_slice,
    expert_log_weight,
    free_energy,
    importance_gradient,
    log_partition_bracket,
)
from keras_capsule_poe.functions.compiled import compiled

COLUMNS = (
    "base coefficients forward forward_error reverse reverse_error width gain gain_error "
    "data_log_w sd tv seconds cosine repeat"
).split()
# Images whose updates are compared, and base draws that stand for the model's term.
COMPARED, DRAWN = 256, 512
BASES = ["ball", "isotropic", "gaussian"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--images", type=Path, help="uint8 (N, H, W, C), .npy; half are fitted to")
    parser.add_argument("--data-dir", help="where the images of the run are")
    parser.add_argument("--limit", type=int, default=6000, help="images of a kind, at most")
    parser.add_argument("--base", nargs="+", choices=BASES, default=BASES)
    parser.add_argument("--chains", type=int, default=512)
    parser.add_argument("--temperatures", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=64)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def visible(model, args):
    """Squashed primary capsules (N, I, D) of images to fit to and of others."""
    if args.images:
        images = np.load(args.images)
        parts = images[::2][: args.limit], images[1::2][: args.limit]
    else:
        data = load_run_data(args.model_dir, args.data_dir)
        parts = [part.head(args.limit).images for part in (data.train, data.test)]
    return [
        np.concatenate(
            [
                np.asarray(model.to_visible(part[i : i + 200].astype("float32") / 255))
                for i in range(0, len(part), 200)
            ]
        )
        for part in parts
    ]


def in_batches(function, x):
    """The function of x, 200 at a time, or its list of results."""
    graph = compiled(function)
    found = [graph(x[i : i + 200]) for i in range(0, len(x), 200)]
    return np.concatenate([np.asarray(part) for part in found])


def bases(model, fitted):
    """The three base measures; the Gaussian has the second moments of images."""
    inputs, dim = fitted.shape[1:]
    return [
        UniformBall(inputs, dim),
        SquashedGaussian(inputs, dim, length=model.primary.target_length),
        CentredGaussian.from_samples(fitted),
    ]


def annealed(base, log_weight, coefficients, kernel, units, args):
    """`Bracket`, and log w of draws of the base."""
    betas = np.linspace(0, 1, args.temperatures + 1)
    if base.name == "gaussian" and coefficients is not None:
        # To experts with fixed coefficients the base is a Gaussian of J E dimensions.
        base = base.of_experts(kernel, coefficients)

        def log_weight(z):
            return -free_energy(z, units)

    if base.name == "gaussian":
        step = elliptical_slice(base, log_weight)
    else:
        step = block_resampling(base, log_weight, args.blocks)
    start = base.draw(args.chains, seed=0)
    plain = np.asarray(compiled(log_weight)(start), "float64")
    return log_partition_bracket(log_weight, step, start, betas, seed=1), plain


def cosines(maps, x, base, coefficients, units):
    """Of Algorithm 1's update to the likelihood's gradient, and of that to another of its kind."""
    rows = coefficients
    if not isinstance(coefficients, Router):
        rows = ops.broadcast_to(coefficients, (len(x), *coefficients.shape))
    update = contrastive_divergence(maps, x, rows, units, units).gradient
    gradients = [
        importance_gradient(maps, x, base.draw(DRAWN, seed=seed), coefficients, units).gradient
        for seed in (2, 3)
    ]
    unit = [np.ravel(part) / np.linalg.norm(part) for part in (update, *gradients)]
    return {"cosine": unit[0] @ unit[1], "repeat": unit[1] @ unit[2]}


def row(base, name, kernel, router, mean, x, args, units):
    """One line of the table."""
    fixed = name == "fixed"
    log_weight = expert_log_weight(kernel, mean if fixed else router, units)
    values = in_batches(log_weight, x)
    begun = time.perf_counter()
    found, plain = annealed(base, log_weight, mean if fixed else None, kernel, units, args)
    seconds = time.perf_counter() - begun
    log_z = (found.forward + found.reverse) / 2
    error = max(found.forward_error, found.reverse_error, abs(found.width) / 2)
    return {
        "base": base.name,
        "coefficients": name,
        **found._asdict(),
        "width": found.width,
        "gain": values.mean() - log_z,
        "gain_error": np.hypot(values.std() / np.sqrt(len(values)), error),
        "data_log_w": values.mean(),
        "sd": plain.std(),
        "tv": np.abs(np.exp(plain - log_z) - 1).mean() / 2,
        "seconds": seconds,
        **cosines(router.maps, x[:COMPARED], base, mean if fixed else router, units),
    }


def main():
    args = arguments()
    model = load_model(args.model_dir)
    fitted, x = visible(model, args)
    experts = model.encoder.experts
    kernel, units = np.asarray(experts.kernel), experts.units
    router = Router(experts.maps(), experts.options, experts.routing_bias, units=units)
    routed = in_batches(lambda x: ops.mean(router.route(x).coefficients, axis=0)[None], fitted)
    mean = routed.mean(axis=0)
    rows = []
    for base in bases(model, fitted):
        if base.name not in args.base:
            continue
        print(f"{base.name}: {base.describe()}", flush=True)
        for name in ("fixed", "routed"):
            rows.append(row(base, name, kernel, router, mean, x, args, units))
            print("  " + "  ".join(_shown(c, rows[-1][c]) for c in COLUMNS[1:]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1, default=float) + "\n")


def _shown(name, value):
    return value if isinstance(value, str) else f"{name} {value:.4g}"


if __name__ == "__main__":
    main()
