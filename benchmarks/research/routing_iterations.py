"""What iterations of routing do to training, as in the appendix of Sabour et al., 2017.

Trains a recipe of `capsnet` with 1, 2, 3 and 5 iterations from the same seeds and prints, by epoch,
the training loss, the accuracy on held-out training images, and how far each iteration moves the
routing logits of 128 of these. Iterations are counted as the paper does, whose last update is not
used: one leaves the coefficients uniform and is the control `coefficients="uniform"`, to the bit.
Rows that were made are kept, and one that was stopped goes on from its last checkpoint.

Usage: python benchmarks/research/routing_iterations.py FOLDER [--dataset NAME] [--recipe NAME]
           [--iterations N ...] [--seeds N ...] [--epochs N] [--limit N]
           [--set SETTING=VALUE ...] [--table]
"""

import argparse
import hashlib
import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import tensorflow as tf
from _cells import cell
from _kept import is_of

from keras_capsule_poe import registry
from keras_capsule_poe.former_names import Metrics
from keras_capsule_poe.training import Reporter, train

STAGE = "capsnet"
ITERATIONS = (1, 2, 3, 5)
# Recipes that route in iterations.
RECIPES = ("small", "paper", "official", "shared")
TABLES = {"training loss": "loss", "accuracy on held-out images": "val_accuracy"}


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--recipe", choices=RECIPES, default="small")
    parser.add_argument("--iterations", nargs="+", type=int, default=ITERATIONS, metavar="N")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    parser.add_argument("--epochs", type=int, help="of all rows; the recipe's otherwise")
    parser.add_argument("--limit", type=int, help="training images, held-out ones included")
    parser.add_argument("--set", nargs="+", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--table", action="store_true", help="print what is there, train nothing")
    return parser.parse_args(given)


def config_of(args, iterations, seed):
    """The `Settings` of a row."""
    more = {} if args.limit is None else {"limit": args.limit}
    config = registry.settings("capsnet", args.recipe, dataset=args.dataset, seed=seed, **more)
    config.update({"capsnet.routing_iterations": iterations})
    if args.epochs is not None:
        config.update({"capsnet.epochs": args.epochs})
    for setting in args.set:
        name, _, value = setting.partition("=")
        config.set(name, value)
    return config


def settings_of(config):
    """All settings of a row as JSON keeps them."""
    return json.loads(json.dumps(config.to_dict()))


def row_name(iterations):
    return "1 iteration, uniform" if iterations == 1 else f"{iterations} iterations"


def history(config, folder):
    """The metrics of each epoch of training; what was trained before is not trained again."""
    digest = hashlib.sha256(json.dumps(settings_of(config), sort_keys=True).encode())
    run = folder / f"run-{digest.hexdigest()[:12]}"
    train(registry.untrained(config), run, reporter=Reporter(), stage=STAGE)
    found = json.loads((run / STAGE / "history.json").read_text())
    shutil.rmtree(run)
    return found


def current(done, args):
    """Of what was kept, histories by row and seed that have the settings asked for."""
    found = {}
    for iterations in args.iterations:
        kept = done.get(row_name(iterations), {})
        found[row_name(iterations)] = {
            str(seed): kept[str(seed)]["history"]
            for seed in args.seeds
            if str(seed) in kept
            and is_of(kept[str(seed)]["settings"], config_of(args, iterations, seed))
        }
    return found


def table(lines):
    """Markdown, a column an epoch, of (name, histories, metric) a line."""
    lines = [line for line in lines if line[1]]
    most = max((len(each) for _, histories, _ in lines for each in histories), default=0)
    head = "| epoch | seeds | " + " | ".join(str(epoch + 1) for epoch in range(most)) + " |"
    text = [head, "|---" * (most + 2) + "|"]
    for name, histories, metric in lines:
        epochs = (
            [Metrics(each[e])[metric] for each in histories if e < len(each)] for e in range(most)
        )
        cells = [cell(values, digits=4) for values in epochs]
        text.append(f"| {name} | {len(histories)} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def report(found):
    """All tables, of what `current` gives."""
    rows = {name: list(by_seed.values()) for name, by_seed in found.items()}
    tables = {
        title: table([(name, histories, metric) for name, histories in rows.items()])
        for title, metric in TABLES.items()
    }
    changes = [
        (f"{name}, {metric.removeprefix('logit_change_')}", histories, metric)
        for name, histories in rows.items()
        if histories
        for metric in histories[0][0]
        if metric.startswith("logit_change_")
    ]
    tables["mean change of the logits by row and iteration"] = table(changes)
    return "\n\n".join(f"{title}:\n\n{text}" for title, text in tables.items())


def main():
    args = arguments()
    # That a function is traced for each of many models is no news.
    tf.get_logger().setLevel("ERROR")
    folder = args.folder / args.dataset / args.recipe
    kept = folder / "routing_iterations.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in [] if args.table else args.seeds:
        for iterations in args.iterations:
            name, config = row_name(iterations), config_of(args, iterations, seed)
            if str(seed) in current(done, args)[name]:
                continue
            print(f"{args.dataset}, seed {seed}, {name}", flush=True)
            made = {"history": history(config, folder), "settings": settings_of(config)}
            done.setdefault(name, {})[str(seed)] = made
            kept.write_text(json.dumps(done, indent=1) + "\n")
    print(f"\n{args.dataset}, recipe {args.recipe}\n\n{report(current(done, args))}")


if __name__ == "__main__":
    main()
