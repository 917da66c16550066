"""A whole training step of a network of matrix capsules: time and memory of each implementation.

`small` on grey images of 28x28 pixels, as MNIST's; `paper` on windows of 32x32 of stereo pairs.
Times are the least of some steps.
Usage: python benchmarks/research/matrix_step.py [--recipe small] [--batch 64] [--json FILE]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import _children as children
import _measure as measure
import numpy as np

from keras_capsule_poe import MatrixCapsNet, registry
from keras_capsule_poe.models.base.networks import optimizer
from keras_capsule_poe.models.matrix_capsules.layers import IMPLEMENTATIONS

SHAPES = {"small": (28, 28, 1), "paper": (32, 32, 2), "official": (32, 32, 2)}
COLUMNS = "recipe batch implementation ms ms_an_image extra_mb".split()


def step(implementation, recipe, batch):
    """A function without arguments that takes one training step."""
    config, shape = registry.settings("matrix-capsules", recipe), SHAPES[recipe]
    config.set("compute.implementation", implementation)
    model = MatrixCapsNet.of_shape(config, shape)
    model.compile(optimizer(config.matrix, images=55_000), jit_compile=False)
    random = np.random.default_rng(0)
    x = random.uniform(size=(batch, *shape)).astype("float32")
    y = np.eye(10, dtype="float32")[random.integers(10, size=batch)]
    return lambda: model.train_on_batch(x, y)


def memory(*case):
    """Extra megabytes of building the network and of two steps."""

    def run():
        call = step(*case)
        call(), call()

    return measure.extra_peak_mb(run)


def speed(seconds, *case):
    """Least milliseconds of a step."""
    call = step(*case)
    call()
    return measure.times({"step": call}, seconds, most=20)["step"]


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--recipe", default="small", choices=SHAPES)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--implementations", nargs="+", default=IMPLEMENTATIONS)
    args = parser.parse_args()
    batch, rows = 4 if args.quick else args.batch, []
    for implementation in args.implementations:
        case = (implementation, args.recipe, batch)
        peak = children.in_child(memory, *case)
        ms = children.in_child(speed, args.seconds, *case)
        rows.append(
            {
                "recipe": args.recipe,
                "batch": batch,
                "implementation": implementation,
                "ms": ms,
                "ms_an_image": ms / batch,
                "extra_mb": peak,
            }
        )
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
