"""All that a training run gave, bit for bit: losses, hashes of weights, of arrays, of results.

It reads the files of a model folder and its SavedModel, not the package, so that two versions of
the package can be compared: record a `--deterministic` run with each, then compare. Times are left
out.
Usage: python benchmarks/record.py MODEL_DIR > new.json
       python benchmarks/record.py --compare old.json new.json
"""

import argparse
import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np

TIMES = ("seconds", "images_per_second")
# What endpoints take besides images and codes.
ARGUMENTS = {"capsule": 1, "n": 5, "steps": 2, "seed": 3}


def digest(array):
    """16 hex digits of an array's type, shape and bytes."""
    array = np.ascontiguousarray(array)
    found = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    found.update(array.tobytes())
    return found.hexdigest()[:16]


def losses(path):
    """Metrics of each epoch of a history."""
    epochs = json.loads(path.read_text())
    return {
        f"epoch {epoch['epoch']} {name}": value
        for epoch in epochs
        for name, value in epoch.items()
        if name not in TIMES
    }


def weights(path):
    """Hashes of all weights of a .keras file, by their path."""
    with zipfile.ZipFile(path) as archive:
        file = io.BytesIO(archive.read("model.weights.h5"))
    found = {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = digest(item[()])

    with h5py.File(file) as stored:
        stored.visititems(note)
    return found


def arrays(path):
    """Hashes of the arrays of an .npy or .npz file."""
    stored = np.load(path)
    each = stored if path.suffix == ".npz" else {"": stored}
    return {name: digest(each[name]) for name in each}


def endpoints(folder):
    """Hashes of what each endpoint of a SavedModel gives for fixed arguments."""
    import tensorflow as tf

    model = tf.saved_model.load(str(folder))
    card = json.loads((folder / "model_card.json").read_text())
    random, values = np.random.default_rng(0), dict(ARGUMENTS)
    for name, shape in (("images", "image_shape"), ("capsules", "capsules")):
        # Classifiers without a decoder take no codes.
        drawn = random.uniform(size=(5, *np.ravel(card.get(shape, ()))))
        values[name] = drawn.astype("float32")
    return {
        f"{name}.{key}": digest(value.numpy())
        for name, arguments in card["endpoints"].items()
        for key, value in getattr(model, name)(*(values[each] for each in arguments)).items()
    }


# Files of a model folder, and what reads them.
READ = {
    "*/history.json": losses,
    "*/model.keras": weights,
    "model.keras": weights,
    "*/*.np[yz]": arrays,
    "*/saved_model.pb": lambda path: endpoints(path.parent),
    "*.png": lambda path: {"": hashlib.sha256(path.read_bytes()).hexdigest()[:16]},
}


def record(folder):
    """Everything that a run gave, by the path of its file and the name of its value."""
    return {
        f"{path.relative_to(folder)} {name}": value
        for pattern, read in READ.items()
        for path in sorted(Path(folder).glob(pattern))
        for name, value in read(path).items()
    }


def compare(old, new):
    """Lines that say in what two records differ, and how many values are equal."""
    lines = [f"only in the first: {name}" for name in old if name not in new]
    lines += [f"only in the second: {name}" for name in new if name not in old]
    lines += [
        f"{name}: {old[name]} -> {new[name]}"
        for name in old
        if name in new and old[name] != new[name]
    ]
    return [*lines, f"{sum(old[n] == new.get(n) for n in old)} of {len(old)} equal"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="a model folder")
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FILE", help="two records")
    args = parser.parse_args()
    if args.compare:
        old, new = (json.loads(path.read_text()) for path in args.compare)
        lines = compare(old, new)
        print("\n".join(lines))
        sys.exit(len(lines) > 1)
    json.dump(record(args.folder), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
