"""How time and memory of a training step grow as inputs, experts, batch and images double.

Cosine routing with two agreement updates and one step of contrastive divergence; inputs of 8
dimensions, experts of 16. The exponent is the slope of log time over log size between neighbours:
1 is linear. "Images" is the number of images streamed in batches of 128 through one epoch.
Usage: python benchmarks/growth.py [--json FILE]
"""

import math

import _children as children
import _measure as measure
import numpy as np
import tensorflow as tf
from cd_step import IN_DIM, OUT_DIM, UPDATES, ours

BASE = {"inputs": 576, "outputs": 20, "batch": 128, "images": 128}
SIZES = {
    "inputs": (288, 576, 1152, 2304, 4608),
    "outputs": (5, 10, 20, 40, 80),
    "batch": (32, 64, 128, 256, 512, 1024),
    "images": (512, 1024, 2048, 4096),
}
COLUMNS = "growing inputs outputs batch images ms exponent extra_mb arrays_mb".split()


def case(inputs, outputs, batch, images):
    """Milliseconds and extra megabytes of the steps for all images."""
    random = np.random.default_rng(0)
    x = tf.constant(0.2 * random.normal(size=(images, inputs, IN_DIM)), "float32")
    shape = (inputs, outputs, OUT_DIM, IN_DIM)
    kernel = tf.Variable(tf.constant(0.1 * random.normal(size=shape), "float32"))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, inputs, IN_DIM))])
    def step(x):
        gradient, *_ = ours(x, tf.convert_to_tensor(kernel))
        kernel.assign_add(1e-3 * gradient)

    def epoch():
        for start in range(0, images, batch):
            step(x[start : start + batch])

    step.get_concrete_function()
    peak = measure.extra_peak_mb(epoch)
    return measure.times({"epoch": epoch}, seconds=1.0, most=10)["epoch"], peak


def main():
    args = measure.parser(__doc__).parse_args()
    rows = []
    for growing, sizes in SIZES.items():
        first = before = None
        for size in sizes[:2] if args.quick else sizes:
            sizes_now = {**BASE, growing: size}
            if growing == "batch":
                sizes_now["images"] = size
            ms, peak = children.in_child(case, *sizes_now.values())
            numbers = sizes_now["inputs"] * OUT_DIM * IN_DIM * sizes_now["outputs"]
            results = sizes_now["batch"] * sizes_now["inputs"] * IN_DIM
            row = {
                "growing": growing,
                **sizes_now,
                "in_dim": IN_DIM,
                "out_dim": OUT_DIM,
                "updates": UPDATES,
                "ms": ms,
                "extra_mb": peak,
                # What any step must hold: the gradient and the reconstructions.
                "arrays_mb": 4 * (numbers + results) / measure.MB,
            }
            for name, other in (("exponent", before), ("exponent_overall", first)):
                if other:
                    row[name] = math.log(ms / other["ms"]) / math.log(size / other[growing])
            rows.append(row)
            first, before = first or row, row
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
