"""EM routing of a convolutional layer of matrix capsules, against the same by plain einsum.

3x3 windows at strides of two over 12x12 places, as in the networks of Hinton et al. (2018) on
28x28 images: 8 types to 16 (their small one) and 32 to 32; gradients through all iterations in
poses, activations and maps. The longer program of six iterations takes more memory, too; `--growth`
tells how much of it is the images'.
Usage: python benchmarks/em_routing.py [--growth] [--json FILE] [--quick]
"""

import _children as children
import _measure as measure
import numpy as np
import tensorflow as tf

from keras_capsule_poe import ConvEMCapsules

PLACES, SIZE = 12, 4
# Types of children and of parents, images, iterations.
CASES = ((8, 16, 64, 3), (8, 16, 64, 6), (32, 32, 16, 3))
FORMS = ("reference", "fused", "xla")
COLUMNS = "types parents images iterations direction form ms ms_an_image extra_mb".split()
COLUMNS += ["time_ratio", "memory_ratio", "error"]
# Of three iterations; six make rounding a hundred to a thousand times larger, in every form, most
# of it in a few places, so that which form is unlucky depends on the processor's order of sums.
# There no form may be this many times as far from float64 as the reference is.
MOST_ERROR, MOST_ROUNDING = 1e-5, 20
ROUNDED = (8, 16, 64, 6)
# Images between which memory grows.
GROWTH, GROWTH_ITERATIONS = (64, 256), (1, 3, 6)
GROWTH_COLUMNS = "form iterations images extra_mb kb_an_image".split()


def compiled(form, types, parents, images, iterations, is_backward, dtype="float32"):
    """A function without arguments that runs a form of the layer as one graph."""
    random = np.random.default_rng(0)
    pose = random.normal(size=(images, PLACES, PLACES, types, SIZE, SIZE)).astype("float32")
    activation = random.uniform(size=pose.shape[:4]).astype("float32")
    options = {"routing_iterations": iterations, "implementation": form, "dtype": dtype}
    layer = ConvEMCapsules(parents, kernel_size=3, strides=2, **options)
    layer.build((pose.shape, activation.shape))
    layer.kernel.assign(0.3 * random.normal(size=layer.kernel.shape))

    def forward(*inputs):
        return layer(inputs, training=True)

    def backward(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = layer(inputs, training=True)
            loss = tf.reduce_sum(found[0] ** 2) + tf.reduce_sum(found[1])
        return [*found, *tape.gradient(loss, [*inputs, layer.kernel.value])]

    graph = tf.function(backward if is_backward else forward, autograph=False)
    inputs = [tf.constant(pose, dtype), tf.constant(activation, dtype)]
    graph = graph.get_concrete_function(*inputs)
    return lambda: graph(*inputs)


def memory(*case):
    """Extra megabytes of one call."""
    return measure.extra_peak_mb(compiled(*case))


def speed(*case):
    """Milliseconds of each form, and how far it is from the reference."""
    calls = {form: compiled(form, *case) for form in FORMS}
    theirs = calls["reference"]()
    error = {
        form: max(measure.relative_error(a, b) for a, b in zip(call(), theirs))
        for form, call in calls.items()
    }
    return measure.times(calls, seconds=4.0), error


def rounding(*case):
    """How far each form is from the reference in float64, forward and backward."""
    exact = compiled("reference", *case, True, "float64")()
    found = {form: compiled(form, *case, True)() for form in FORMS}
    return {
        form: max(measure.relative_error(a, b) for a, b in zip(parts, exact))
        for form, parts in found.items()
    }


def growth(form, iterations, images):
    """Rows of `GROWTH_COLUMNS`: memory, forward and backward, of few and of many images."""
    found = [children.in_child(memory, form, *CASES[0][:2], n, iterations, True) for n in images]
    slope = 1000 * (found[1] - found[0]) / (images[1] - images[0])
    same = {"form": form, "iterations": iterations}
    few, many = (same | {"images": n, "extra_mb": mb} for n, mb in zip(images, found))
    return [few, many | {"kb_an_image": slope}]


def main():
    parser, rows = measure.parser(__doc__), []
    parser.add_argument("--growth", action="store_true", help="memory by images and iterations")
    args = parser.parse_args()
    if args.growth:
        images = (2, 4) if args.quick else GROWTH
        rows = [
            row for form in FORMS[1:] for n in GROWTH_ITERATIONS for row in growth(form, n, images)
        ]
        return measure.report(rows, GROWTH_COLUMNS, args.json)
    for types, parents, images, iterations in CASES[: 1 if args.quick else None]:
        for is_backward in (False, True):
            case = (types, parents, 2 if args.quick else images, iterations, is_backward)
            least, error = children.in_child(speed, *case)
            peak = dict(zip(FORMS, children.in_children(memory, [(form, *case) for form in FORMS])))
            for form in FORMS:
                rows.append(
                    {
                        "types": types,
                        "parents": parents,
                        "images": case[2],
                        "iterations": iterations,
                        "direction": "forward+backward" if is_backward else "forward",
                        "form": form,
                        "ms": least[form],
                        "ms_an_image": least[form] / case[2],
                        "extra_mb": peak[form],
                        "time_ratio": least[form] / least["reference"],
                        "memory_ratio": peak[form] / peak["reference"],
                        "error": error[form],
                    }
                )
    measure.report(rows, COLUMNS, args.json)
    worst = max(row["error"] for row in rows if row["iterations"] == 3)
    if worst > MOST_ERROR:
        raise SystemExit(f"3 iterations differ by {worst:.1e}, more than {MOST_ERROR}.")
    if not args.quick:
        far = children.in_child(rounding, *ROUNDED)
        said = ", ".join(f"{form} {error:.1e}" for form, error in far.items())
        print(f"6 iterations, from the reference in float64: {said}")
        if max(far.values()) > MOST_ROUNDING * far["reference"]:
            raise SystemExit(f"A form is over {MOST_ROUNDING} times as far as the reference.")


if __name__ == "__main__":
    main()
