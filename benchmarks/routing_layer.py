"""The routing layer forward, and forward and backward, at the size of Sabour et al. (2017).

1152 inputs of 8 dimensions, 10 outputs of 16, 3 iterations (two agreement updates), batch 128;
gradients through all iterations in the inputs and the maps.
Usage: python benchmarks/routing_layer.py [--json FILE] [--against OLD_CHECKOUT [--fail]]
"""

import _against as against
import _children as children
import _measure as measure
import _public_forms as public
import numpy as np
import tensorflow as tf

from keras_capsule_poe import RoutingLayer

INPUTS, OUTPUTS, IN_DIM, OUT_DIM, UPDATES = 1152, 10, 8, 16, 2
# What Sabour et al. route by, and what Hauser routes by.
ROUTINGS = {
    "dot over outputs": (public.route_dot, {"agreement": "dot", "softmax_over": "outputs"}),
    "cosine over inputs": (public.route_cosine, {"agreement": "cosine", "softmax_over": "inputs"}),
}
COLUMNS = "routing images direction form ms extra_mb time_ratio memory_ratio error".split()


def data(images):
    """Squashed inputs, maps and the gradient that comes from above."""
    random = np.random.default_rng(0)
    x = random.normal(size=(images, INPUTS, IN_DIM)) / 2
    kernel = 0.1 * random.normal(size=(INPUTS, OUTPUTS, OUT_DIM, IN_DIM))
    above = random.normal(size=(images, OUTPUTS, OUT_DIM))
    return [tf.constant(array, "float32") for array in (x, kernel, above)]


def compiled(name, routing, is_backward, x, kernel, above):
    """A function without arguments that runs a form, traced for any batch size."""
    route, options = ROUTINGS[routing]
    if name == "ours":
        options = against.routing_options(routing_iterations=UPDATES + 1, **options)
        layer = RoutingLayer(OUTPUTS, OUT_DIM, **options)
        layer.build((None, *x.shape[1:]))
        layer.kernel.assign(kernel)
        weights = layer.kernel.value
    else:
        weights = tf.Variable(kernel)

        def layer(x):
            maps = tf.convert_to_tensor(weights)
            return public.squash(route(public.FORMS[name], x, maps, UPDATES)[1])

    def forward(x, above):
        return [layer(x)]

    def backward(x, above):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = tf.reduce_sum(y * above)
        return [y, *tape.gradient(loss, [x, weights])]

    signature = [tf.TensorSpec((None, *array.shape[1:])) for array in (x, above)]
    graph = tf.function(
        backward if is_backward else forward, autograph=False, input_signature=signature
    ).get_concrete_function()
    return lambda: graph(x, above)


def memory(name, routing, is_backward, images):
    """Extra megabytes of one call."""
    return measure.extra_peak_mb(compiled(name, routing, is_backward, *data(images)))


def speed(routing, is_backward, images):
    """Milliseconds of each form, and its largest difference from ours."""
    arrays = data(images)
    names = [*public.FORMS, "ours"]
    calls = {name: compiled(name, routing, is_backward, *arrays) for name in names}
    results = {name: call() for name, call in calls.items()}
    error = {
        name: max(measure.relative_error(a, b) for a, b in zip(results["ours"], result))
        for name, result in results.items()
    }
    results = None
    return measure.times(calls, seconds=3.0), error


def library_call(routing, is_backward, images):
    """One call of the layer, as `against` times it."""
    return compiled("ours", routing, is_backward, *data(images))


def main():
    parser = measure.parser(__doc__)
    against.add_arguments(parser)
    args = parser.parse_args()
    rows, images = [], 8 if args.quick else 128
    if args.against:
        cases = [
            {"routing": routing, "is_backward": is_backward, "images": images}
            for routing in ROUTINGS
            for is_backward in (False, True)
        ]
        against.compare("routing_layer", cases[:1] if args.quick else cases, args)
        return
    for routing in ROUTINGS:
        for is_backward in (False, True):
            least, error = children.in_child(speed, routing, is_backward, images)
            cases = [(name, routing, is_backward, images) for name in least]
            peak = dict(zip(least, children.in_children(memory, cases)))
            best_ms = min(least[name] for name in public.FORMS)
            best_mb = min(peak[name] for name in public.FORMS)
            for name in least:
                rows.append(
                    {
                        "routing": routing,
                        "images": images,
                        "inputs": INPUTS,
                        "outputs": OUTPUTS,
                        "in_dim": IN_DIM,
                        "out_dim": OUT_DIM,
                        "updates": UPDATES,
                        "direction": "forward+backward" if is_backward else "forward",
                        "form": name,
                        "ms": least[name],
                        "extra_mb": peak[name],
                        "time_ratio": least[name] / best_ms,
                        "memory_ratio": peak[name] / best_mb,
                        "error": None if name == "ours" else error[name],
                    }
                )
    measure.report(rows, COLUMNS, args.json)
    worst = max(row["error"] for row in rows if row["error"] is not None)
    if worst > 1e-5:
        raise SystemExit(f"The forms differ by {worst:.1e}, more than 1e-5.")


if __name__ == "__main__":
    main()
