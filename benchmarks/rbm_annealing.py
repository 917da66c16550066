"""Annealed importance sampling of an RBM 784-500: seconds of 100 chains at 14,500 temperatures.

Random weights of about a trained machine's size; and the share that its two products would have of
the rate of a large product.
Usage: python benchmarks/rbm_annealing.py [--json FILE]
"""

import time

import _children as children
import _measure as measure
import numpy as np

VISIBLE, HIDDEN, CHAINS = 784, 500, 100
COLUMNS = "chains temperatures seconds share_of_product_rate log_z error".split()


def annealed(*pieces):
    """A row: seconds of an estimate of log Z, its graph made anew, and the estimate."""
    from keras_capsule_poe.functions import (
        DenseMaps,
        Harmonium,
        annealed_partition,
        annealing_schedule,
    )

    random = np.random.default_rng(0)
    maps = DenseMaps((0.1 * random.normal(size=(HIDDEN, VISIBLE))).astype("float32"))
    biases = random.normal(size=HIDDEN) - 1, random.normal(size=VISIBLE) - 2
    machine, betas = Harmonium(maps, None, None, *biases), annealing_schedule(*pieces)
    product, operations = measure.large_product()
    start = time.perf_counter()
    found = annealed_partition(machine, betas, CHAINS)
    seconds = time.perf_counter() - start
    rate = operations / measure.times({"product": product})["product"] * 1e3
    steps = len(betas) - 1
    return {
        "chains": CHAINS,
        "temperatures": steps,
        "seconds": seconds,
        "share_of_product_rate": 4.0 * steps * CHAINS * VISIBLE * HIDDEN / seconds / rate,
        "product_gflops": rate / 1e9,
        "log_z": found.log_z,
        "error": found.error,
    }


def main():
    args = measure.parser(__doc__).parse_args()
    pieces = [(1.0, 500)] if args.quick else []
    measure.report([children.in_child(annealed, *pieces)], COLUMNS, args.json)


if __name__ == "__main__":
    main()
