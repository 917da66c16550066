"""Where the paper's plain form learns: units, rates and lengths of features, on held-out images.

Each row trains encoder and decoder of the recipe `paper` with the settings of its name on the
features of 12,000 training images, and is scored on 2,000 others, the last training images.
Relative errors of primary capsules: `mean`, of the mean of the features; `one_step`, after one
step of the chain; `whole_code`, decoded from the whole code; `linear`, by the best linear map of
codes. A classifier of the data set names `accuracy` of whole codes' decodings rightly,
`linear_accuracy` of those of the best linear map and `ceiling` of the primary capsules' own; of
whole codes and of the most probable capsule alone it is sure of the shares `recognised` and
`one_capsule`. `p` and `spread` are the mean and the spread over images of the experts'
probabilities; `length` and `sent_back` the mean |x_j| of the data and of what the decoder rule
compares it with. The autoencoder is trained once and kept, and so is every row: a search that
was stopped goes on where it was.

Usage: python benchmarks/research/plain_form.py FOLDER [--dataset NAME] [--rows NAME ...]
           [--set SETTING=VALUE ... --as NAME] [--pictures]
"""

import argparse
import ast
import hashlib
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import numpy as np
from _kept import is_of

from keras_capsule_poe import ProductOfExpertCapsules, registry
from keras_capsule_poe.core.labels import winner_alone
from keras_capsule_poe.core.numerics import squash
from keras_capsule_poe.data import ImageSet, batches, load_images
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.scores import recognition
from keras_capsule_poe.figures import image_figure, save_figure
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.models.base import features
from keras_capsule_poe.models.capsule_poe.decoder import build_decoder
from keras_capsule_poe.models.capsule_poe.encoder import build_encoder

IMAGES, HELD_OUT, SHOWN = 12_000, 2_000, 20
COLUMNS = (
    "mean one_step whole_code linear length sent_back p spread accuracy linear_accuracy ceiling "
    "recognised one_capsule seconds"
).split()
# The rows that are published: settings beside those of the recipe.
ROWS = {
    "recipe": {},
    "decoder agreement scale 1": {"decoder.agreement_scale": 1.0},
    "decoder without routing": {"decoder.routing_iterations": 1},
    "decoder normalised over outputs": {"decoder.softmax_over": "outputs"},
    "encoder normalised over outputs": {"encoder.softmax_over": "outputs"},
    "both normalised over outputs": {
        "encoder.softmax_over": "outputs",
        "decoder.softmax_over": "outputs",
    },
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--set", nargs="+", metavar="SETTING=VALUE", help="a row of your own")
    parser.add_argument("--as", dest="name", help="its name")
    parser.add_argument("--pictures", action="store_true")
    return parser.parse_args()


class Problem:
    """Features of training and held-out images, and the classifier; trained once and kept."""

    def __init__(self, dataset, folder):
        folder.mkdir(parents=True, exist_ok=True)
        data = load_images(dataset).train
        images, rest = data.images, slice(None, -HELD_OUT)
        self.held_out_images, self.labels = images[-HELD_OUT:], data.labels[-HELD_OUT:]
        self.judge = evaluation_classifier(ImageSet(images[rest], data.labels[rest]), folder)
        path = folder / "autoencoder.keras"
        if not path.exists():
            autoencoder_of(registry.settings("capsules"), images[:IMAGES]).save(path)
        self.autoencoder = features.as_float32(keras.models.load_model(path, compile=False))
        kept = folder / "features.npz"
        if not kept.exists():
            parts = {"train": images[:IMAGES], "held_out": self.held_out_images}
            maps = {k: map_batches(self.autoencoder.encode, v) for k, v in parts.items()}
            np.savez(kept, **{k: v.astype("float16") for k, v in maps.items()})
        with np.load(kept) as stored:
            self.train, self.held_out = stored["train"], stored["held_out"]


def autoencoder_of(config, images):
    """An autoencoder of these settings, trained on images."""
    model = features.build_autoencoder(config, images.shape[1:])
    settings = config.autoencoder
    rate = features.autoencoder_optimizer(settings, len(images))
    model.compile(rate, "binary_crossentropy", jit_compile=False)
    epochs, steps = settings.schedule.over(len(images))
    stream = batches(images, batch_size=settings.batch_size, seed=config.seed, epochs=epochs)
    model.fit(stream, epochs=epochs, steps_per_epoch=steps, shuffle=False, verbose=0)
    return model


def config_of(recipe, settings, seed=0):
    """The `Settings` of a row: a preset, and settings beside its own."""
    config = registry.settings("capsules", recipe, seed=seed)
    config.update(settings)
    return config


def sections_of(config):
    """All settings of a row as JSON keeps them."""
    return {name: part.model_dump(mode="json") for name, part in config.parts.items()}


def train(problem, settings, folder):
    """The product of these settings, and what was measured."""
    config = config_of("paper", settings)
    primary = features.build_primary(config, problem.train.shape[1:])
    primary.adapt(problem.train[start : start + 500] for start in range(0, IMAGES, 500))
    x, held_out = (map_batches(primary, maps) for maps in (problem.train, problem.held_out))
    begun = time.perf_counter()
    encoder = _encoder(problem, config, primary, folder)
    encoder.compile(jit_compile=False)
    scored = encoder.evaluate(held_out, batch_size=128, verbose=0, return_dict=True)
    codes = map_batches(encoder, x)
    decoder = build_decoder(config, primary.capsules)
    fit(config, "decoder", decoder, primary, (codes, problem.train))
    seconds = time.perf_counter() - begun
    product = ProductOfExpertCapsules(problem.autoencoder, primary, encoder, decoder)
    product.build((None, *problem.autoencoder.image_shape))
    training_codes, codes = codes, map_batches(encoder, held_out)
    z = map_batches(primary.to_capsules, problem.train)
    best = map_batches(squash, linear_decodings(training_codes, z, codes))
    alone = map_batches(winner_alone, codes)
    decoded = map_batches(product.render, codes)
    z = config.decoder.feature_scale * np.asarray(primary.to_capsules(problem.held_out[:200]))
    back = decoder.primaries.decoder_divergence(codes[:200], z).reconstruction
    return product, {
        "mean": float(relative_error(np.broadcast_to(x.mean(axis=0), held_out.shape), held_out)),
        "one_step": scored["loss"],
        "whole_code": float(relative_error(decoded["primary_capsules"], held_out)),
        "linear": float(relative_error(best, held_out)),
        "length": float(np.linalg.norm(codes, axis=-1).mean()),
        "sent_back": float(np.linalg.norm(back, axis=-1).mean()),
        "p": scored["probability_mean"],
        "spread": scored["probability_spread"],
        "accuracy": accuracy(problem, decoded["images"]),
        "linear_accuracy": accuracy(problem, map_batches(product.from_visible, best)),
        "ceiling": accuracy(problem, map_batches(product.from_visible, held_out)),
        "recognised": recognised(problem, decoded["images"]),
        "one_capsule": recognised(problem, map_batches(product.render, alone)["images"]),
        "seconds": seconds,
    }


def _encoder(problem, config, primary, folder):
    """The trained encoder; rows that differ in the decoder alone share it."""
    parts = [part.model_dump() for part in (config.primary, config.encoder)]
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
    path = folder / f"encoder-{name}.keras"
    if not path.exists():
        model = build_encoder(config, primary.capsules)
        fit(config, "encoder", model, primary, problem.train)
        model.save(path)
    return keras.models.load_model(path, compile=False)


def fit(config, section, model, primary, arrays):
    settings = getattr(config, section)
    least = getattr(settings, "min_learning_rate_fraction", 0.1)
    model.compile(features.sgd(settings, IMAGES, least), jit_compile=False)
    epochs, steps = settings.schedule.over(IMAGES)
    order = {"batch_size": settings.batch_size, "seed": config.seed, "epochs": epochs}
    if isinstance(arrays, tuple):
        stream = batches(arrays, **order).map(lambda codes, maps: (codes, primary(maps)))
    else:
        stream = batches(arrays, **order).map(primary)
    model.fit(stream, epochs=epochs, steps_per_epoch=steps, shuffle=False, verbose=0)


def recognised(problem, images):
    if not np.isfinite(images).all():
        return 0.0
    return recognition(problem.judge(images)[1])["confident"]


def accuracy(problem, images):
    if not np.isfinite(images).all():
        return 0.0
    named = problem.judge(images)[1].argmax(axis=-1)
    return float(np.mean(problem.judge.labels[named] == problem.labels))


def linear_decodings(codes, z, new_codes, ridge=1e-6):
    """What the best linear map of codes (N, J, E) to z (N, I, D) makes of new codes.

    Args:
        ridge: float, over the mean second moment of a code's coordinates.
    """
    a, b, y = (np.reshape(part, (len(part), -1)) for part in (codes, new_codes, z))
    a, b = a.astype("float64"), b.astype("float64")
    moments = a.T @ a
    moments[np.diag_indices_from(moments)] += ridge * np.trace(moments) / len(moments)
    decoded = b @ np.linalg.solve(moments, a.T @ y)
    return decoded.reshape(len(b), *z.shape[1:]).astype("float32")


def save_pictures(problem, product, path):
    """Held-out images, whole codes decoded, the winner alone, and plain Gaussians, by rows."""
    images = problem.held_out_images[:SHOWN].astype("float32") / 255
    codes = product.encode(images)["capsules"]
    single = product.decode(winner_alone(codes))["images"]
    drawn = [product.sample(SHOWN, seed, "single", "prior") for seed in range(3)]
    ordered = [np.asarray(d["images"])[np.argsort(d["capsule"])] for d in drawn]
    rows = [images, product.decode(codes)["images"], single, *ordered]
    names = ["held out", "whole code", "winner", *("plain Gaussian" for _ in ordered)]
    save_figure(path, image_figure([(rows, names, None, None)], columns=10))


def main():
    args = arguments()
    rows = {name: ROWS[name] for name in args.rows}
    if args.set:
        pairs = (text.partition("=")[::2] for text in args.set)
        rows = {args.name or " ".join(args.set): {name: _value(text) for name, text in pairs}}
    folder = args.folder / args.dataset
    problem, kept = Problem(args.dataset, folder), folder / "rows.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for name, settings in rows.items():
        config = config_of("paper", settings)
        if name not in done or not is_of(done[name]["sections"], config) or args.pictures:
            product, found = train(problem, settings, folder)
            done = json.loads(kept.read_text()) if kept.exists() else {}
            done[name] = {"settings": settings, **found, "sections": sections_of(config)}
            kept.write_text(json.dumps(done, indent=1) + "\n")
            if args.pictures:
                save_pictures(problem, product, folder / f"{name}.png")
        shown = (f"{column} {done[name][column]:.3g}" for column in COLUMNS)
        print(f"{args.dataset}, {name}: " + "  ".join(shown), flush=True)


def _value(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


if __name__ == "__main__":
    main()
