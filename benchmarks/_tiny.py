"""Runs of every family that take seconds, and what they leave."""

import json
import sys
from pathlib import Path

import keras
import numpy as np

# Makes the classes known to Keras.
import keras_capsule_poe  # noqa: F401

CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]
# Graphs are what takes time here, and few iterations have the smaller ones.
FEATURES = (
    "autoencoder.filters=4",
    "compute.precision=float32",
    "compute.implementation=reference",
)
SETTINGS = {
    "capsules": (
        *FEATURES, "encoder.capsules=3", "encoder.dim=4", "encoder.routing_iterations=2",
    ),
    "neurons": (
        *FEATURES, "experts.capsules=3", "experts.dim=4", "experts.posterior_states=9",
        "experts.joint_steps=3", "experts.routing_iterations=2",
        "top.capsules=2", "top.dim=5", "top.epochs=20",
    ),
    "rbm": ("rbm.hidden=10", "rbm.persistent_chains=20"),
    "capsnet": ("capsnet.filters=6", "capsnet.types=2", "compute.precision=float32"),
    "matrix-capsules": (
        "matrix.filters=4", "matrix.primary_types=2", "matrix.types=2", "matrix.last_types=2",
        "matrix.size=2", "matrix.routing_iterations=2", "compute.precision=float32",
        "matrix.augmentation=none", "matrix.decoder=dense",
    ),
}  # fmt: skip
RECIPES = {"rbm": "small", "capsnet": "small", "matrix-capsules": "small"}
# Hidden files that belong to a run.
HIDDEN = {".lock", ".run.json", ".done.json"}


def train_options(family, folder, epochs=20, seed=3, limit=100):
    """What follows `capspoe` to train a family on a few digits, the same bits each time."""
    options = ["train", "--dataset", "digits", "--model", family, "--model-dir", str(folder)]
    options += ["--limit", str(limit), "--batch-size", "20", "--epochs", str(epochs)]
    options += ["--seed", str(seed), "--deterministic", "--checkpoint-seconds", "0.5"]
    options += ["--recipe", RECIPES[family]] if family in RECIPES else []
    return options + [word for name in SETTINGS[family] for word in ("--set", name)]


def state(folder):
    """All numbers that a finished run left, by name, but for times: to be compared bit by bit."""
    folder, found = Path(folder), {}
    for path in sorted(folder.rglob("model.keras")):
        weights = keras.models.load_model(path, compile=False).get_weights()
        found[str(path.relative_to(folder))] = [weight.tobytes() for weight in weights]
    for path in sorted(folder.glob("*/*.np[yz]")):
        arrays = np.load(path)
        each = {name: arrays[name] for name in arrays} if path.suffix == ".npz" else {"": arrays}
        found |= {f"{path.relative_to(folder)}:{k}": a.tobytes() for k, a in each.items()}
    for path in sorted(folder.glob("*/history.json")):
        epochs = json.loads(path.read_text())
        found[str(path.relative_to(folder))] = [{**epoch, "seconds": 0} for epoch in epochs]
    for path in sorted(folder.glob("*.png")):
        found[path.name] = path.read_bytes()
    found["versions"] = sorted(path.parent.name for path in folder.glob("*/saved_model.pb"))
    return found


def differing(wanted, folder):
    """Names in which what a finished run left differs from a `state`."""
    found = state(folder)
    return [name for name in wanted | found if wanted.get(name) != found.get(name)]


def shares(moments, families):
    """How many of so many moments each family has.

    Examples:

    >>> shares(5, ["rbm", "capsnet"])
    {'rbm': 3, 'capsnet': 2}
    """
    return {family: len(range(i, moments, len(families))) for i, family in enumerate(families)}


def leftovers(folder):
    """Paths in a finished run's folder that should not be there."""
    hidden = [path for path in Path(folder).rglob(".*") if path.name not in HIDDEN]
    return [str(path) for path in (*hidden, *Path(folder).glob("*/checkpoints"))]
