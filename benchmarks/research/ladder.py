"""The ladder from the paper's plain form to the default recipe: what each departure is worth.

A departure is a group of settings in which the recipe `generation` differs from `paper`; their
values are read from the two recipes. Rungs add departures to the plain form one after the other,
until it is the default; then each is left out of the default; then few are taken alone; then
routing; then chains of three and ten steps; then poles in the place of frames; then what might draw
better than the default. All rows train on features of the same 12,000 training images, of an
autoencoder that all share, with as many steps of as many images (`EQUAL`), and are judged by 2,000
draws of each kind against 2,000 others, the last training images: `prior` directions of a plain
Gaussian, `posterior` codes like those of training. `whole_code` is the relative error of primary
capsules decoded from whole codes, `accuracy` how often the classifier names their images rightly,
`most_won` the share of images that one capsule wins, `seconds` the processor time that training
took. Rows that were made are kept: a ladder that was stopped goes on where it was, seed by seed.
Rows that differ after the encoder share it.

Usage: python benchmarks/research/ladder.py FOLDER [--dataset NAME] [--rows NAME ...]
           [--seeds N ...] [--table]
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import plain_form
from _cells import table
from _kept import is_of
from plain_form import HELD_OUT, IMAGES, Problem, accuracy, fit, sections_of

from keras_capsule_poe import CapsuleEncoder, ProductOfExpertCapsules, registry
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.scores import scores_of
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.models.base import features
from keras_capsule_poe.models.base.clusters import initialize_maps
from keras_capsule_poe.models.capsule_poe.codes import adapt_whitening, mixture_of
from keras_capsule_poe.models.capsule_poe.decoder import build_decoder
from keras_capsule_poe.models.capsule_poe.encoder import build_encoder
from keras_capsule_poe.plotting import render

PLAIN, DEFAULT, AFFINE = "paper", "generation", "affine"
# Three times through the images for encoder and decoder each. What starts from noise needs steps
# more than it needs images.
EQUAL = {
    f"{section}.{name}": value
    for section in ("encoder", "decoder")
    for name, value in {"batch_size": 32, "epochs": None, "steps": 3 * IMAGES // 32}.items()
}
# The former default has two departures more.
FORMER = {"decoder.activity": 2.0, "decoder.routing_iterations": 1}
# The default's settings as the ladder was climbed. Those that it tried last are the default's now.
CLIMBED = {
    **FORMER,
    "encoder.coefficient_sum": 5.0,
    "encoder.initializer": "clusters",
    "decoder.weight_decay": 1e-4,
    "decoder.shared_capsules": 0,
}
# Then, axes of less than a thousandth of the largest variance were not whitened.
FLOOR = 1e-3
# Rates and lengths come with the departure that asks for them.
DEPARTURES = {
    "centring": (
        "primary.center primary.target_length encoder.learning_rate encoder.momentum "
        "encoder.weight_decay"
    ),
    "competition": "encoder.softmax_over encoder.coefficient_sum encoder.activation_prior_weight",
    "cluster start": "encoder.initializer",
    "frames": "encoder.whitening decoder.offset",
    "load balancing": "encoder.load_balancing",
    "conditional decoder": (
        "decoder.conditional decoder.feature_scale decoder.learning_rate decoder.momentum "
        "decoder.weight_decay"
    ),
    "activity weights": "decoder.activity",
    "uniform decoder routing": "decoder.routing_iterations",
}
MORE = {
    "default, no routing": (DEFAULT, {"encoder.routing_iterations": 1}),
    "plain form, no routing": (
        PLAIN,
        {"encoder.routing_iterations": 1, "decoder.routing_iterations": 1},
    ),
    "default, CD-3": (DEFAULT, {"encoder.cd_steps": 3}),
    "default, CD-10": (DEFAULT, {"encoder.cd_steps": 10}),
    "plain form, CD-3": (PLAIN, {"encoder.cd_steps": 3}),
    "plain form, CD-10": (PLAIN, {"encoder.cd_steps": 10}),
}
# What might draw better than the default.
TRIED = {
    "default, twice the steps": (
        DEFAULT,
        {name: 2 * steps for name, steps in EQUAL.items() if name.endswith(".steps")},
    ),
    "default, scale 3": (DEFAULT, {"encoder.coefficient_sum": 3.0}),
    "default, scale 8": (DEFAULT, {"encoder.coefficient_sum": 8.0}),
    "default, activation prior 3": (DEFAULT, {"encoder.activation_prior_weight": 3.0}),
}
# Few departures with which single capsules may draw, by what each is worth.
FEW = (
    ("competition", "cluster start", "frames", "load balancing"),
    ("competition", "frames", "load balancing"),
    ("competition", "frames", "load balancing", "conditional decoder"),
)
WANTED = "recognised purity modal_classes coverage precision recall frechet".split()
SOURCES = ("prior", "posterior")
TABLES = {
    "prior": [f"prior_{name}" for name in WANTED],
    "posterior": [f"posterior_{name}" for name in WANTED],
    "codes": "whole_code accuracy most_won seconds".split(),
}


def rows():
    """Name to (recipe, settings beside its own), in the order of the ladder."""
    plain, default = _values(PLAIN), _values(DEFAULT) | CLIMBED
    groups = {name: names.split() for name, names in DEPARTURES.items()}
    found, climbed = {"plain form": (PLAIN, {})}, {}
    for name, group in groups.items():
        climbed |= {setting: default[setting] for setting in group}
        found[f"+ {name}"] = (PLAIN, _without_idle(PLAIN, climbed))
    # Without the last departure the default is the last rung but one.
    for name, without in list(without_departures(CLIMBED).items())[:-1]:
        found[name] = (DEFAULT, without)
    for names in FEW:
        few = {setting: default[setting] for name in names for setting in groups[name]}
        found[f"plain form + {', '.join(names)}"] = (PLAIN, _without_idle(PLAIN, few))
    return found | MORE | _with_poles(plain, default, groups) | TRIED


def without_departures(settings):
    """Name to settings beside those of the default, without one departure each.

    `settings` replace some of the default. What it then has in common with the paper is no
    departure.
    """
    plain, default = _values(PLAIN), _values(DEFAULT) | settings
    groups = {name: names.split() for name, names in DEPARTURES.items()}
    return {
        f"default, no {name}": _without_idle(
            DEFAULT, {setting: plain[setting] for setting in group}
        )
        for name, group in groups.items()
        if any(plain[setting] != default[setting] for setting in group)
    }


def _with_poles(plain, default, groups):
    """Poles in the place of frames, where experts compete: what they can learn needs a mean."""
    poles = {name: value for name, value in _values(AFFINE).items() if value != plain[name]}
    few = [*groups["competition"], *groups["load balancing"]]
    few = {setting: default[setting] for setting in few} | poles
    bare = [*groups["centring"], *groups["frames"]]
    bare = {setting: plain[setting] for setting in bare} | poles
    return {
        "plain form + competition, load balancing, poles": (PLAIN, _without_idle(PLAIN, few)),
        "default, poles for frames, no centring": (DEFAULT, _without_idle(DEFAULT, bare)),
    }


def config_of(recipe, settings, seed=0):
    """The `Settings` of a row."""
    climbed = CLIMBED if recipe == DEFAULT else {}
    return plain_form.config_of(recipe, {**EQUAL, **climbed, **settings}, seed)


def _values(recipe):
    parts = registry.settings("capsules", recipe).parts
    return {
        f"{part}.{name}": value
        for part, settings in parts.items()
        for name, value in settings.model_dump().items()
    }


def _without_idle(recipe, settings):
    """Less those that mean nothing beside the others, such as a prior where all inputs share."""
    config = config_of(recipe, settings)
    idle = config.idle()
    return {name: value for name, value in settings.items() if name not in idle}


def current(done, rows):
    """Of what was measured, what is of these rows: one whose settings changed is made anew."""
    return {
        name: {
            seed: figures
            for seed, figures in done.get(name, {}).items()
            if is_of(figures["sections"], config_of(*row))
        }
        for name, row in rows.items()
    }


class Shared:
    """Trained experts by their settings: rows that differ in what comes later have the same."""

    def __init__(self):
        self._kept = {}

    def encoder(self, config, problem, primary):
        """A `CapsuleEncoder` of its own, its experts trained; and the seconds that took."""
        settings = config.encoder.model_dump() | config.primary.model_dump()
        key = json.dumps([config.seed, {**settings, "whitening": None}])
        if key not in self._kept:
            self._kept[key] = _train_encoder(config, problem, primary)
        trained, seconds = self._kept[key]
        model = CapsuleEncoder.from_config(trained.get_config())
        model.build((None, primary.capsules, primary.dim))
        model.set_weights(trained.get_weights())
        return model, seconds


def _train_encoder(config, problem, primary):
    begun = time.process_time()
    model = build_encoder(config, primary.capsules)

    def x_of(chosen):
        return map_batches(primary, problem.train[chosen])

    initialize_maps(model.experts, config.encoder.initializer, x_of, IMAGES, config.seed)
    fit(config, "encoder", model, primary, problem.train)
    return model, time.process_time() - begun


def train(problem, config, shared, floor=FLOOR):
    """The `ProductOfExpertCapsules` of these settings, and the seconds that training took."""
    primary = features.build_primary(config, problem.train.shape[1:])
    primary.adapt(problem.train[start : start + 500] for start in range(0, IMAGES, 500))
    encoder, seconds = shared.encoder(config, problem, primary)
    begun = time.process_time()
    z = map_batches(lambda maps: encoder.experts.route(primary(maps)).z, problem.train)
    if config.encoder.whitening:

        def x_of(chosen):
            return map_batches(primary, problem.train[chosen])

        adapt_whitening(encoder, z, x_of, floor)
    codes = map_batches(encoder.whitening, z)
    decoder = build_decoder(config, primary.capsules)
    fit(config, "decoder", decoder, primary, (codes, problem.train))
    visited = mixture_of(codes, codes[:, 0, :0], config.codes.components, config.seed)
    product = ProductOfExpertCapsules(problem.autoencoder, primary, encoder, decoder, visited)
    product.build((None, *problem.autoencoder.image_shape))
    return product, {"seconds": seconds + time.process_time() - begun}


def judged(problem, product, seed):
    """Figures of each kind of draw, and of whole codes."""
    real, _ = problem.judge(problem.held_out_images)
    figures = {}
    for source, (codes, capsule) in draws(product, HELD_OUT, seed).items():
        images = render(product, codes)
        if not np.isfinite(images).all():
            continue
        found = scores_of(problem.judge(images), real, capsule)
        figures |= {f"{source}_{name}": found[name] for name in WANTED}
    x = map_batches(product.primary, problem.held_out)
    codes = map_batches(product.encoder, x)
    decoded = map_batches(product.render, codes)
    longest = np.linalg.norm(codes, axis=-1).argmax(axis=-1)
    return figures | {
        "whole_code": float(relative_error(decoded["primary_capsules"], x)),
        "accuracy": accuracy(problem, decoded["images"]),
        "most_won": float(np.bincount(longest).max() / len(longest)),
    }


def draws(product, n, seed):
    """For each domain, codes (N, J, E) of single capsules, and which these are (N,)."""
    found = {}
    for domain in ("prior", "posterior"):
        drawn = product.draw(n, seed, "single", domain)
        found[domain] = drawn["capsules"], np.asarray(drawn["capsule"])
    return found


def arguments(names):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    return parser.parse_args()


def main():
    every = rows()
    args = arguments(list(every))
    folder = args.folder / args.dataset
    kept = folder / "ladder.json"
    done = current(json.loads(kept.read_text()) if kept.exists() else {}, every)
    if not args.table:
        problem = Problem(args.dataset, folder)
        for seed in args.seeds:
            shared = Shared()
            for name in args.rows:
                if str(seed) in done[name]:
                    continue
                config = config_of(*every[name], seed)
                product, found = train(problem, config, shared)
                found |= judged(problem, product, seed)
                done[name][str(seed)] = {**found, "sections": sections_of(config)}
                kept.write_text(json.dumps(done, indent=1) + "\n")
                print(f"{args.dataset}, seed {seed}, {name}: {found}", flush=True)
    for title, columns in TABLES.items():
        print(f"\n{args.dataset}, {title}:\n\n{table(done, args.rows, args.seeds, columns)}")


if __name__ == "__main__":
    main()
