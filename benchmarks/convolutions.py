"""Large filters in their fast form against the plain one: forward, and a training step's way.

Batches of 128 maps; `backward` has both gradients. `share` is the rate of the plain form's
operations, as a share of a large product's in float32: the fast form's may pass 1.
Usage: python benchmarks/convolutions.py [--dtype float32|bfloat16] [--json FILE] [--quick]
"""

import _children as children
import _measure as measure
import numpy as np
import tensorflow as tf

from keras_capsule_poe.core.fused.convolution import convolve, transposed

# Where they stand: maps' size, channels, filters' size, number of them, stride, padding; or that
# they lead back, from channels to fewer.
CASES = {
    "primary capsules, paper": (20, 256, 9, 256, 2, "valid"),
    "primary capsules, small": (20, 64, 9, 96, 2, "valid"),
    "autoencoder": (19, 128, 9, 128, 2, "valid"),
    "autoencoder, to pixels": (19, 128, 10, 1, 1, "transposed"),
    "convolutional control": (14, 256, 5, 256, 1, "same"),
}
BATCH = 128
COLUMNS = "case direction plain_ms fast_ms ratio plain_share fast_share error".split()


def calls(case, is_backward, dtype):
    """Both forms as functions without arguments, and the operations of the plain one."""
    size, channels, taps, filters, strides, padding = CASES[case]
    random = np.random.default_rng(0)
    # As behind a rectifier.
    x = np.maximum(random.normal(size=(BATCH, size, size, channels)), 0)
    is_back = padding == "transposed"
    sides = (filters, channels) if is_back else (channels, filters)
    kernel = random.normal(size=(taps, taps, *sides)) / taps
    x, kernel = tf.cast(x, dtype), tf.cast(kernel, dtype)

    def convolved(x, fast):
        if is_back:
            return transposed(x, kernel, strides, fast)
        return convolve(x, kernel, strides, padding, fast)

    def form(fast):
        @tf.function
        def forward():
            return [convolved(x, fast)]

        @tf.function
        def backward():
            with tf.GradientTape() as tape:
                tape.watch([x, kernel])
                y = convolved(x, fast)
                loss = tf.reduce_sum(tf.square(tf.cast(y, "float32")))
            return tape.gradient(loss, [x, kernel])

        return backward if is_backward else forward

    found = {"plain": form(False), "fast": form(True)}
    places = (size if is_back else convolved(x[:1], False).shape[1]) ** 2
    operations = 2.0 * BATCH * places * taps**2 * channels * filters
    return found, operations * (3 if is_backward else 1)


def row(case, is_backward, dtype):
    """Times, rates and the largest difference of a case."""
    forms, operations = calls(case, is_backward, dtype)
    plain, fast = ([tf.cast(y, "float32") for y in forms[name]()] for name in ("plain", "fast"))
    error = max(measure.relative_error(a, b) for a, b in zip(fast, plain))
    product, of_product = measure.large_product()
    least = measure.times({**forms, "product": product}, seconds=8.0)
    rate = of_product / least["product"]
    return {
        "case": case,
        "direction": "forward+backward" if is_backward else "forward",
        "plain_ms": least["plain"],
        "fast_ms": least["fast"],
        "ratio": least["fast"] / least["plain"],
        "plain_share": operations / least["plain"] / rate,
        "fast_share": operations / least["fast"] / rate,
        "error": error,
    }


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    args = parser.parse_args()
    cases = ["primary capsules, small"] if args.quick else CASES
    rows = [
        children.in_child(row, case, way, args.dtype) for case in cases for way in (False, True)
    ]
    measure.report(rows, COLUMNS, args.json, dtype=args.dtype)


if __name__ == "__main__":
    main()
