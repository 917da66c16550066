"""What a training run gave, bit for bit: losses, hashes of weights, results of the SavedModel.

It reads the files of a model folder alone, so that two versions of the package can be compared:
record a `--deterministic` run with each, then compare. "seconds" are left out.
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


def digest(array):
    """16 hex digits of an array's type, shape and bytes."""
    array = np.ascontiguousarray(array)
    found = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    found.update(array.tobytes())
    return found.hexdigest()[:16]


def weights(path):
    """Hashes of all weights of a .keras file, by their path."""
    with zipfile.ZipFile(path) as archive:
        file = io.BytesIO(archive.read("model.weights.h5"))
    found = {}
    with h5py.File(file) as stored:
        stored.visititems(
            lambda name, item: (
                found.update({name: digest(item[()])}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return found


def endpoints(folder):
    """Hashes of what each endpoint of the SavedModel gives for fixed arguments."""
    import tensorflow as tf

    model = tf.saved_model.load(str(folder))
    random = np.random.default_rng(0)
    images = random.uniform(size=(5, *_shape(model, "encode", "images"))).astype("float32")
    capsules = random.normal(size=(5, *_shape(model, "decode", "capsules"))) / 8
    capsules = capsules.astype("float32")
    calls = {
        "encode": lambda: model.encode(images),
        "decode": lambda: model.decode(capsules),
        "reconstruct": lambda: model.reconstruct(images),
        "free_energy": lambda: model.free_energy(images),
        "sample": lambda: model.sample(5, 3),
        "sample_capsule": lambda: model.sample_capsule(1, 5, 3),
        "sample_joint": lambda: model.sample_joint(5, 3),
    }
    return {
        f"{name}.{key}": digest(value.numpy())
        for name, call in calls.items()
        for key, value in call().items()
    }


def _shape(model, endpoint, argument):
    specification = model.signatures[endpoint].structured_input_signature[1]
    return specification[argument].shape[1:]


def record(folder):
    """Everything that a run of a model gave, by name."""
    folder = Path(folder)
    found = {}
    for path in sorted(folder.glob("*/history.json")):
        for epoch in json.loads(path.read_text()):
            for name, value in epoch.items():
                if name not in TIMES:
                    found[f"{path.parent.name} epoch {epoch['epoch']} {name}"] = value
    for path in sorted([*folder.glob("*/model.keras"), *folder.glob("model.keras")]):
        for name, value in weights(path).items():
            found[f"{path.relative_to(folder)} {name}"] = value
    for name in ("features/primary.npz", "encoder/visited.npz"):
        with np.load(folder / name) as arrays:
            found.update({f"{name} {key}": digest(arrays[key]) for key in arrays.files})
    found["encoder/codes.npy"] = digest(np.load(folder / "encoder" / "codes.npy"))
    versions = [path for path in folder.iterdir() if path.name.isdecimal()]
    newest = max(versions, key=lambda path: int(path.name))
    found.update({f"endpoint {name}": value for name, value in endpoints(newest).items()})
    return found


def compare(old, new):
    """Lines that say in what two records differ."""
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
