"""Trains every stage of every model on one device, and anew on two replicas of one process.

Run in a process of its own, since replicas are set up before TensorFlow computes anything:
prints, for each stage, by how much its weights and its figures differ, as JSON; then, without
--right, the same of what would be wrong with these runs.

Usage: python tests/training/replicas_program.py FOLDER [--right] [NAME ...]
"""

import contextlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from keras_capsule_poe import registry
from keras_capsule_poe.cli.terminal import import_tensorflow
from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.distributed import devices
from keras_capsule_poe.training import Reporter, train

# 3 epochs of 7 steps; 43 images: of the seven images of a batch one replica has three, the
# other four, and of the one image of an epoch's last batch each has it whole.
IMAGES, BATCH, EPOCHS = 43, 7, 3
FIRST = ("autoencoder", "features")
HOW = {"compute": {"implementation": "reference", "precision": "float32"}}
FEATURES = {"autoencoder": {"filters": 4}, **HOW}
PLAIN = {"routing_iterations": 2}
EXPERTS = {"capsules": 3, "dim": 3, "posterior_states": 4, **PLAIN}
RBM = {"hidden": 6}
CHAINS = {**RBM, "persistent_chains": 4}
MATRIX = {"filters": 3, "primary_types": 2, "types": 2, "last_types": 2, "size": 2}
MATRIX |= {"routing_iterations": 2, "augmentation": "none", "decoder": "dense"}
# The matrix capsules take their own form of routing.
PRECISE = {"compute": {"precision": "float32"}}
CAPSNET = {"filters": 3, "augmentation": "none"}
RUNS = {
    "capsules": ("capsules", None, 20, {
        **FEATURES,
        "encoder": {"capsules": 3, "dim": 3, "load_balancing": 0.3, **PLAIN},
        "decoder": PLAIN,
    }),
    "neurons": ("neurons", "held", 20, {
        **FEATURES, "experts": {**EXPERTS, "load_balancing": 0.3}, "top": {"capsules": 1, "dim": 4},
    }),
    "latent neurons": ("neurons", "latent", 20, {**FEATURES, "experts": EXPERTS}),
    "mixture": ("neurons", "mixture", 20, {
        **FEATURES, "experts": {"capsules": 3, "dim": 3, "posterior_states": 4},
    }),
    "rbm": ("rbm", None, 6, {"rbm": {**RBM, "algorithm": "cd"}}),
    "persistent rbm": ("rbm", None, 6, {"rbm": {**CHAINS, "algorithm": "pcd"}}),
    "tempered rbm": ("rbm", None, 6, {
        "rbm": {**CHAINS, "algorithm": "pt", "temperatures": 3},
    }),
    "capsnet": ("capsnet", "small", 28, {
        **PRECISE, "capsnet": {**CAPSNET, "types": 1, "routing_iterations": 1},
    }),
    "control": ("capsnet", "baseline", 28, {
        "compute": {"precision": "float32", "microbatch": 3}, "capsnet": CAPSNET,
    }),
    "matrix capsules": ("matrix-capsules", "small", 16, {**PRECISE, "matrix": MATRIX}),
    "variational": ("matrix-capsules", "small", 16, {
        **PRECISE, "matrix": {**MATRIX, "routing": "variational"},
    }),
}  # fmt: skip


def undivided(reduce):
    return lambda means, same, share: reduce(means, same, 0 * share + 1)


def of_the_first(reduce):
    def wrong(means, same, share):
        import tensorflow as tf

        is_first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
        return reduce(means, same, tf.where(is_first, 1.0, 0.0))

    return wrong


def of_equal_weight(reduce):
    return lambda means, same, share: reduce(means, same, 0 * share + 0.5)


# What would be wrong, as (stage, name in `models.base.sharing`, what it is replaced by).
WRONG = {
    "a sum over replicas that is no mean": ("rbm", "_all_reduced", undivided),
    "the images of the first replica alone": ("rbm", "_all_reduced", of_the_first),
    "replicas that count equally whatever images they have": (
        "rbm", "_all_reduced", of_equal_weight,
    ),
    "noise that each replica draws for itself": ("rbm", "rows_at_hand", lambda _: nothing_known),
    "batches that each replica normalises by itself": (
        "variational", "_synchronized", lambda _: nothing_known,
    ),
}  # fmt: skip


@contextlib.contextmanager
def nothing_known(*_):
    yield


def images(side):
    random = np.random.default_rng(0)
    # Blobs, for experts to differ and neurons to be neither all on nor all off.
    low = random.uniform(size=(IMAGES + 6, side // 2, side // 2, 1))
    pixels = (255 * np.kron(low, np.ones((1, 2, 2, 1)))).astype("uint8")
    labels = np.arange(IMAGES + 6) % 10
    sets = [ImageSet(pixels[part], labels[part]) for part in (slice(IMAGES), slice(IMAGES, None))]
    return ImageData(sets[0], sets[1], held_out=sets[1])


def differences_of(run, folder, two):
    """By stage: the largest differences of weights, and of figures, over one plus their size.

    What one device makes of a run is kept: it is the same whatever is wrong with two.
    """
    model, preset, side, values = RUNS[run]
    settings = registry.settings(model, preset, dataset="any", checkpoint_seconds=1e9, **values)
    settings.set_all(epochs=EPOCHS, batch_size=BATCH)
    untrained, stages = registry.untrained(settings), list(settings.stages)[:-1]
    # The first stages of other models are those of capsules.
    compared = [name for name in stages if model == "capsules" or name not in FIRST]
    quiet = {"load_data": lambda: images(side), "reporter": Reporter(verbose=0)}
    one, other = folder / run.replace(" ", "-"), folder / "two"
    train(untrained, one, stage=stages[-1], **quiet)
    found = {}
    for stage in compared:
        shutil.copytree(one, other)
        train(untrained, other, stage=stage, fresh=True, distribution=two, **quiet)
        paths = [root / stage for root in (one, other)]
        differences = []
        for path in sorted(paths[0].glob("*")):
            if path.suffix in (".keras", ".npy", ".npz"):
                differences.append(difference(path, paths[1] / path.name))
        measured = [json.loads((path / "done.json").read_text())["metrics"] for path in paths]
        found[stage] = {"weights": max(differences), "figures": figures(*measured)}
        shutil.rmtree(other)
    return found


def difference(path, other):
    arrays = [[np.asarray(value, "float64") for value in values(each)] for each in (path, other)]
    pairs = [(a, b) for a, b in zip(*arrays) if a.size]
    # What is adapted afterwards, the inverse of a covariance, may be large.
    gaps = [np.abs(a - b).max() / (1 + np.abs(a).max()) for a, b in pairs]
    return float(max(gaps, default=0.0))


def values(path):
    import keras

    if path.suffix == ".keras":
        return keras.models.load_model(path, compile=False).get_weights()
    loaded = np.load(path)
    return [loaded] if path.suffix == ".npy" else [loaded[name] for name in loaded]


def figures(one, other):
    names = [name for name, value in one.items() if isinstance(value, float) and name != "seconds"]
    gaps = {name: abs(one[name] - other[name]) / (1 + abs(one[name])) for name in names}
    return max(gaps.values(), default=0.0)


def gradient_descent(net, images):
    """For classifiers in place of Adam, which moves far by the rounding of vanishing gradients.

    In small steps where batches are normalised: the moments of several devices are summed by
    another formula than those of one, E[x^2] - E[x]^2, and with seven images a step of 0.05 makes
    much of the last digits.
    """
    import keras

    is_normalised = getattr(net, "routing", None) == "variational"
    return keras.optimizers.SGD(1e-3 if is_normalised else 0.05)


def main(folder, *chosen):
    import_tensorflow()

    from keras_capsule_poe.models.base import classifier as fitting
    from keras_capsule_poe.models.base import sharing

    fitting.optimizer = gradient_descent
    two = devices.start(2, note=lambda line: None)
    is_right, chosen = "--right" in chosen, [name for name in chosen if name != "--right"]
    for name in RUNS:
        if chosen and name not in chosen:
            continue
        found = differences_of(name, Path(folder), two)
        print(json.dumps({name: found}), flush=True)
    for text, (run, name, wrong) in WRONG.items():
        if is_right or (chosen and run not in chosen):
            continue
        right = getattr(sharing, name)
        setattr(sharing, name, wrong(right))
        found = differences_of(run, Path(folder), two)
        setattr(sharing, name, right)
        print(json.dumps({text: found}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
