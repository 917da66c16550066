"""Routing and one step of contrastive divergence: time and peak memory, against public forms.

Cosine routing of 3 iterations (two agreement updates), 20 experts of 16 dimensions, inputs of 8.
Usage: python benchmarks/cd_step.py [--json FILE] [--against OLD_CHECKOUT [--fail]]
"""

import _against as against
import _children as children
import _measure as measure
import _public_forms as public
import numpy as np
import tensorflow as tf

OUTPUTS, IN_DIM, OUT_DIM, UPDATES = 20, 8, 16, 2
IMAGES, INPUTS = (32, 128, 1024), (576, 1152, 4608)
PAPER = (128, 576)
# Nothing is tried that would take more seconds or more of the free memory than this.
MOST_SECONDS, MOST_MEMORY = 3.0, 0.4
COLUMNS = (
    "form images inputs ms extra_mb speedup_over_best share_of_product_rate error skipped".split()
)


def data(images, inputs):
    """Squashed inputs and maps."""
    random = np.random.default_rng(0)
    x = public.squash(tf.constant(random.normal(size=(images, inputs, IN_DIM)) / 2, "float32"))
    kernel = 0.1 * random.normal(size=(inputs, OUTPUTS, OUT_DIM, IN_DIM))
    return x, tf.constant(kernel, "float32")


def ours(x, kernel):
    """The library's step: gradient, x~, z and z~."""
    from keras_capsule_poe import functions

    options = against.routing_options(routing_iterations=UPDATES + 1, softmax_over="inputs")
    maps = functions.BlockMaps(kernel)
    router = functions.Router(maps, functions.RoutingOptions(**options))
    return tuple(functions.contrastive_divergence(maps, x, routing=router)[:4])


def compiled(name, x, kernel):
    """A function without arguments that runs a form, traced for any batch size."""
    if name == "ours":
        step = ours
    else:
        form = public.FORMS[name]

        def step(x, kernel):
            return public.divergence_step(form, x, kernel, UPDATES)

    signature = [tf.TensorSpec((None, *x.shape[1:])), tf.TensorSpec(kernel.shape)]
    graph = tf.function(step, autograph=False, input_signature=signature).get_concrete_function()
    return lambda: graph(x, kernel)


def memory(name, images, inputs):
    """Extra megabytes of one step."""
    call = compiled(name, *data(images, inputs))
    return measure.extra_peak_mb(call)


def speed(names, images, inputs):
    """Milliseconds of each form and of a large product, its rate, and each form's error."""
    x, kernel = data(images, inputs)
    calls = {name: compiled(name, x, kernel) for name in names}
    results = {name: call() for name, call in calls.items()}
    error = {
        name: max(measure.relative_error(a, b) for a, b in zip(results["ours"], result))
        for name, result in results.items()
        if name != "ours"
    }
    results = None
    calls["product"], operations = measure.large_product()
    # More rounds of the case that the bars speak of.
    least = measure.times(calls, seconds=12.0 if (images, inputs) == PAPER else 2.0)
    return least, operations / least["product"] * 1e3, error


def library_call(images, inputs):
    """One step of the library, as `against` times it."""
    return compiled("ours", *data(images, inputs))


def main():
    parser = measure.parser(__doc__)
    against.add_arguments(parser)
    args = parser.parse_args()
    grid = [(b, i) for i in INPUTS for b in IMAGES]
    grid = grid[:1] if args.quick else grid
    if args.against:
        against.compare("cd_step", [{"images": b, "inputs": i} for b, i in grid], args)
        return
    rows, per_pair = [], {}
    for images, inputs in grid:
        pairs = images * inputs * OUTPUTS
        skipped = {}
        for name in public.FORMS:
            seconds = per_pair.get(name, 0) * pairs
            share = 4 * OUT_DIM * pairs * public.COPIES[name] / 1e6 / measure.available_mb()
            if share > MOST_MEMORY:
                skipped[name] = f"needs {share:.0%} of the free memory"
            elif seconds > MOST_SECONDS:
                skipped[name] = f"takes about {seconds:.0f} s"
        names = [name for name in public.FORMS if name not in skipped]
        least, rate, error = children.in_child(speed, [*names, "ours"], images, inputs)
        cases = [(name, images, inputs) for name in [*names, "ours"]]
        extra_mb = dict(zip([*names, "ours"], children.in_children(memory, cases)))
        best = min((least[name] for name in names), default=None)
        # Votes, reconstruction, second votes and two outer products: what no form can avoid.
        operations = 5 * 2.0 * pairs * IN_DIM * OUT_DIM
        for name in [*public.FORMS, "ours"]:
            row = {
                "form": name,
                "images": images,
                "inputs": inputs,
                "outputs": OUTPUTS,
                "in_dim": IN_DIM,
                "out_dim": OUT_DIM,
                "updates": UPDATES,
            }
            rows.append(row)
            if name in skipped:
                row["skipped"] = skipped[name]
                continue
            ms = least[name]
            per_pair[name] = ms / 1e3 / pairs
            row["ms"] = ms
            row["extra_mb"] = extra_mb[name]
            row["share_of_product_rate"] = operations / (ms / 1e3) / rate
            row["product_gflops"] = rate / 1e9
            if name == "ours":
                row["speedup_over_best"] = best / ms if best else None
            else:
                row["error"] = error[name]
    measure.report(rows, COLUMNS, args.json)
    worst = max((row["error"] for row in rows if "error" in row), default=0.0)
    if worst > 1e-5:
        raise SystemExit(f"The forms differ by {worst:.1e}, more than 1e-5.")


if __name__ == "__main__":
    main()
