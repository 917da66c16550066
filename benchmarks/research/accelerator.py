"""Capsule networks for as long as they were published, on a machine with a GPU.

The layers, losses, recipes, images and orders of `capspoe train --model capsnet`, or
`matrix-capsules`, on Keras' Jax backend, without TensorFlow. Data are `digits`, or an `.npz` of
images; `--pairs` overlaps two of them (MultiMNIST), whose error is that of pairs. The last training
images are held out; the test images are classified once, after the last epoch; several seeds also
vote. A training that was stopped goes on from its last epoch, and what was measured is kept in
FOLDER.

Error of the 2017 paper, 0.25%: python benchmarks/research/accelerator.py build/paper mnist.npz
    --recipe official --epochs 640 --seeds 0 1 2
Usage: python benchmarks/research/accelerator.py FOLDER DATA [--model NAME] [--recipe NAME]
           [--epochs N] [--seeds N ...] [--pairs] [--limit N] [--held-out N]
           [--set SETTING=VALUE ...]
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

from keras_capsule_poe import registry
from keras_capsule_poe.core.labels import are_longest
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data import ComposedSet, gathered, load_images
from keras_capsule_poe.data.composed import Overlapping
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.evaluation.classification import wilson_interval
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.models.base.networks import AUGMENTATIONS, optimizer
from keras_capsule_poe.training.optimizers import averaged

CHUNK = 250
FAMILIES = ("capsnet", "matrix-capsules")


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("data")
    parser.add_argument("--model", default="capsnet", choices=FAMILIES)
    parser.add_argument("--recipe", default="paper")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--pairs", action="store_true", help="two images, one over the other")
    parser.add_argument("--limit", type=int, help="use the first training images only")
    parser.add_argument("--held-out", type=int, default=1000)
    parser.add_argument("--set", nargs="+", default=[], metavar="SETTING=VALUE")
    return parser


def config_of(args, seed):
    """The `Settings` of a seed; the decay per step is that of the recipe."""
    config = registry.settings(args.model, args.recipe, dataset=args.data, seed=seed)
    # Which format is faster is asked of TensorFlow, which is not needed here.
    config.set("compute.precision", "float32")
    for setting in args.set:
        name, _, value = setting.partition("=")
        config.set(name, value)
    if args.epochs:
        config.set(f"{config.stage}.epochs", args.epochs)
    return config


def images_of(args):
    """Training, held-out and test images; composed ones are the same at every look."""
    data = load_images(args.data, limit=args.limit).hold_out(args.held_out)
    if not args.pairs:
        return data.train, data.held_out, data.test
    made = [ComposedSet(each, Overlapping()) for each in (data.train, data.held_out, data.test)]
    return made[0], *(each.fixed() for each in made[1:])


def batches(images, config, epoch):
    """One epoch of what a network is fitted to, and how many batches it has."""
    net = config.net
    hot = np.eye(net.classes, dtype="float32")
    has_targets = "targets" in images.epoch(0, 0)(np.arange(1))
    names = ("images", "labels", "targets") if has_targets else ("images", "labels")
    steps, gather = gathered(
        images,
        names,
        batch_size=net.batch_size,
        seed=config.seed,
        first_epoch=epoch,
        epochs=epoch + 1,
        augment=None if has_targets else AUGMENTATIONS[net.augmentation],
    )

    def examples():
        for pixels, labels, *targets in gather():
            parts = hot[labels]
            y = (parts.max(axis=1), to_pixels(targets[0]), parts) if targets else parts
            yield to_pixels(pixels), y

    return examples(), steps


def probabilities(classify, images):
    """What a classifier says of each class of images, (N, J)."""
    parts = (images.images[k : k + CHUNK] for k in range(0, len(images), CHUNK))
    return np.concatenate([np.asarray(classify(to_pixels(part))) for part in parts])


def share_right(found, images):
    """The share of images whose classes are all named."""
    right = are_longest(found, images.labels)
    return float(np.mean(right.reshape(len(found), -1).all(axis=1)))


def trained(args, seed, images, held_out):
    """A trained network, and the accuracy on held-out images and seconds of each epoch."""
    config = config_of(args, seed)
    keras.utils.set_random_seed(seed)
    kind, net = registry.model_class(args.model), config.net
    model = kind.of_shape(config, held_out.image_shape)
    model.compile(optimizer(net, len(images)))
    model.microbatch = config.compute.microbatch
    epochs, steps = net.schedule.over(len(images))
    callbacks = kind.callbacks(config, model, epochs * steps)
    model.optimizer.build(model.trainable_variables)
    classify = _classifier(model)
    kept, history = args.folder / f"{_name(args)}-{seed}-{_digest(args, config)}.npz", []
    variables = [*model.variables, *model.optimizer.variables]
    if kept.exists():
        with np.load(kept) as found:
            history = json.loads(str(found["history"]))
            for k, variable in enumerate(variables):
                variable.assign(found[str(k)])
    for epoch in range(len(history), epochs):
        begun = time.perf_counter()
        examples, steps = batches(images, config, epoch)
        found = model.fit(
            examples, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=callbacks
        ).history
        seconds = time.perf_counter() - begun
        with averaged(model):
            right = share_right(probabilities(classify, held_out), held_out)
        history.append({"loss": found["loss"][0], "held_out": right, "seconds": seconds})
        print(f"seed {seed}, epoch {epoch + 1}: {history[-1]}", flush=True)
        arrays = {str(k): np.asarray(variable) for k, variable in enumerate(variables)}
        with atomic_write(kept, suffix=".npz") as temporary:
            np.savez(temporary, history=json.dumps(history), **arrays)
    return model, history


def _classifier(model):
    """Lengths of images, by the variables as they are when it is called."""
    if keras.backend.backend() != "jax":
        return compiled(lambda pixels: model.classify(pixels)["probabilities"])
    import jax

    @jax.jit
    def lengths(trainable, others, pixels):
        pairs = [*zip(model.trainable_variables, trainable)]
        pairs += zip(model.non_trainable_variables, others)
        with keras.StatelessScope(state_mapping=pairs):
            return model.classify(pixels)["probabilities"]

    def classify(pixels):
        own = [v.value for v in model.trainable_variables]
        return lengths(own, [v.value for v in model.non_trainable_variables], pixels)

    return classify


def _digest(args, config):
    """Of all that a training depends on: another one must not go on with its numbers."""
    settings = json.loads(json.dumps(config.to_dict(), default=str))
    net = settings[config.stage]
    # A margin that grows over the run depends on how long this is, too.
    grows = "matrix" in settings and not net["published_code"]
    if net["learning_rate_schedule"] != "cosine" and not grows:
        del net["epochs"]
    text = json.dumps([settings, args.pairs, args.limit, args.held_out])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _name(args):
    model = "" if args.model == "capsnet" else f"{args.model}-"
    return model + args.recipe + ("-pairs" if args.pairs else "")


def main(given=None):
    args = parser().parse_args(given)
    args.folder.mkdir(parents=True, exist_ok=True)
    train, held_out, test = images_of(args)
    rows, votes = [], []
    for seed in args.seeds:
        model, history = trained(args, seed, train, held_out)
        with averaged(model):
            votes.append(probabilities(_classifier(model), test))
        minutes = sum(epoch["seconds"] for epoch in history) / 60
        rows.append({"seed": seed, "epochs": len(history), **error_of(votes[-1], test)})
        rows[-1] |= {"held_out": history[-1]["held_out"], "minutes": minutes}
        print(
            f"{_name(args)}, seed {seed}, {len(history)} epochs: {words(rows[-1])}, held out right "
            f"{100 * history[-1]['held_out']:.2f}%, {minutes:.1f} min",
            flush=True,
        )
    if len(votes) > 1:
        rows.append({"seed": "all", **error_of(np.mean(votes, axis=0), test)})
        print(f"{_name(args)}, {len(votes)} seeds that vote: {words(rows[-1])}", flush=True)
    path = args.folder / f"{_name(args)}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def error_of(found, images):
    """The share of images that are named wrongly, with its 95% interval (Wilson)."""
    error = 1 - share_right(found, images)
    low, high = wilson_interval(round(error * len(images)), len(images))
    return {"error": error, "low": low, "high": high}


def words(row):
    error, low, high = (100 * row[name] for name in ("error", "low", "high"))
    return f"test error {error:.2f}% ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
