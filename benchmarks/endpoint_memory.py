"""Memory of SavedModel endpoints on many images, above that of the loaded model.

Each endpoint runs in a process of its own: it loads the SavedModel, answers 64 images, then all of
them at once. `above_mb` is the growth of the peak memory by the answer. The caller's images are
there before: a float32 tensor, or an array of bytes, which TensorFlow copies. The last row is the
method of the Keras model. It fails if a row of `classify` exceeds the bar.
Usage: python benchmarks/endpoint_memory.py [--images N]
"""

import argparse
import itertools
import resource
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from keras_capsule_poe import CapsNet, load
from keras_capsule_poe.serving import export_saved_model

BAR_MB = 300


def peak_mb():
    """Peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def answer(folder, name, kind, n):
    """Print the growth of the peak memory by one call on n images of a kind."""
    if kind == "keras":
        network = CapsNet.from_recipe("small", (28, 28, 1), 10)
        endpoint, images = getattr(network, name), np.full((n, 28, 28, 1), 0.5, "float32")
    else:
        model = tf.saved_model.load(folder)
        endpoint = getattr(model, name)
        images = np.full((n, 28, 28, 1), 128, "uint8")
        if kind == "floats":
            images = tf.fill((n, 28, 28, 1), 0.5)
    endpoint(images[:64])
    before = peak_mb()
    endpoint(images)
    print(f"{peak_mb() - before:.0f}")


def main():
    """Measure the endpoints of a capsule network and of a product of expert capsules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--answer", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.answer:
        return answer(*args.answer, args.images)
    failed = False
    print(f"{'model':10} {'endpoint':12} {'images':7} {'above_mb':>8}  of {args.images:,} of 28x28")
    for title, model, names, kinds in (
        ("CapsNet", CapsNet.from_recipe("small", (28, 28, 1), 10), ("classify", "encode"),
         ("floats", "bytes", "keras")),
        ("capsules", load("mnist"), ("encode", "free_energy"), ("floats",)),
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = export_saved_model(model, folder, {})
            for name, kind in itertools.product(names, kinds):
                command = [sys.executable, __file__, "--images", str(args.images), "--answer"]
                found = subprocess.run(
                    [*command, str(path), name, kind], capture_output=True, text=True, check=True
                )
                above = float(found.stdout.split()[-1])
                failed |= name == "classify" and above > BAR_MB
                print(f"{title:10} {name:12} {kind:7} {above:8.0f}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
