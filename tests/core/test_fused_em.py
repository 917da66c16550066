"""EM routing a few images at a time against the readable form, and its gradient against autodiff.

Rejected: a gradient that stops at an iteration, at the variance or at the damped mean; children
that windows share and that get the gradient of one; a slice that leaves images out; votes of all
images kept for the gradient.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.functions import EMOptions, ReceptiveFields, em_routing
from keras_capsule_poe.models.matrix_capsules import fused_em as em

INPUTS, OUTPUTS, SIZE = 2, 3, 2
OPTIONS = [
    EMOptions(inverse_temperature=0.5, schedule="linear"),
    EMOptions(inverse_temperature=2.0, compete="places", damping=0.3, routing_iterations=4),
    EMOptions(inverse_temperature=0.5, assignment_temperature=3.0),
    EMOptions(routing_iterations=1, schedule="constant", damping=0.1),
]


def problem(fields, shared, images=3, dtype="float64"):
    random = np.random.default_rng(0)
    places = fields.grid[0] * fields.grid[1]
    maps = () if shared else fields.children.shape[1:]
    pose = random.normal(size=(images, places, INPUTS, SIZE, SIZE))
    activation = random.uniform(0.1, 1, size=(images, places, INPUTS))
    kernel = random.normal(size=(*maps, INPUTS, OUTPUTS, SIZE, SIZE))
    betas = random.normal(size=(2, OUTPUTS))
    added = random.normal(size=(fields.children.shape[1], SIZE**2))
    return [tf.constant(x, dtype) for x in (pose, activation, kernel, *betas)], added


def readable(pose, activation, kernel, beta_u, beta_a, fields, options, added):
    maps = "kijno" if len(kernel.shape) == 5 else "ijno"
    votes = tf.einsum(f"bpkimn,{maps}->bpkijmo", fields.gather(pose), kernel)
    votes = tf.reshape(votes, (*votes.shape[:5], SIZE**2)) + added[:, None, None]
    found = em_routing(votes, fields.gather(activation), beta_u, beta_a, fields, options)
    return found.pose, found.activation


def found(function, at, *more):
    """What a function gives, and the gradients of a sum of it with weights."""
    random = np.random.default_rng(1)
    with tf.GradientTape() as tape:
        tape.watch(at)
        results = function(*at, *more)
        weights = [tf.constant(random.normal(size=x.shape), x.dtype) for x in results]
        loss = sum(tf.reduce_sum(w * x) for w, x in zip(weights, results))
    return results, tape.gradient(loss, at)


@pytest.mark.some(3)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "grid", [(5, 4, 3, 2), pytest.param((4, 4, 2, 1), marks=pytest.mark.long), (3, 2, None, 1)]
)
@pytest.mark.parametrize("shared", [True, False])
def test_it_and_its_gradient_are_those_of_the_readable_form(grid, shared, options, monkeypatch):
    # An image at a time.
    monkeypatch.setattr(em, "AT_ONCE", 1)
    fields = ReceptiveFields(*grid)
    at, added = problem(fields, shared)
    for ours, theirs in zip(
        found(em.route_matrices, at, fields, options, added),
        found(readable, at, fields, options, added),
    ):
        for a, b in zip(ours, theirs, strict=True):
            # Float64 sums in another order.
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_slices_and_graphs_of_any_batch(monkeypatch):
    fields, options = ReceptiveFields(4, 4, 2), OPTIONS[0]
    at, added = problem(fields, shared=False, images=5)
    shapes = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in at[:2]]

    def step(pose, activation):
        return found(em.route_matrices, [pose, activation, *at[2:]], fields, options, added)

    votes = 9 * 8 * OUTPUTS * SIZE**2
    expected = step(*at[:2])
    for images in (1, 2, 3):
        monkeypatch.setattr(em, "AT_ONCE", images * votes)
        for ours, theirs in zip(step(*at[:2]), expected):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(em, "AT_ONCE", 2 * votes)
    graph = tf.function(
        lambda *x: em.route_matrices(*x, *at[2:], fields, options, added),
        input_signature=shapes,
        autograph=False,
    )
    for n in (5, 1, 2):
        for a, b in zip(graph(at[0][:n], at[1][:n]), expected[0], strict=True):
            np.testing.assert_allclose(a, b[:n], rtol=1e-9, atol=1e-9)


def most_numbers(function, arguments):
    """How many numbers the largest tensor of a graph has, loops and branches included."""
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    written = graph.as_graph_def(add_shapes=True)
    nodes = [*written.node, *(node for f in written.library.function for node in f.node_def)]
    shapes = [shape for node in nodes for shape in node.attr["_output_shapes"].list.shape]
    sizes = [[side.size for side in shape.dim] for shape in shapes if not shape.unknown_rank]
    assert len(sizes) == len(shapes) and min(map(min, filter(None, sizes))) >= 0
    return max(map(np.prod, sizes))


@pytest.mark.long
def test_no_graph_holds_the_votes_of_all_images(monkeypatch):
    fields, images, an_image = ReceptiveFields(4, 4, 2), 24, 9 * 8 * OUTPUTS * SIZE**2
    at, added = problem(fields, shared=False, images=images)
    monkeypatch.setattr(em, "AT_ONCE", an_image)

    def step(form):
        return lambda *at: found(form, list(at), fields, OPTIONS[0], added)

    inputs = max(int(tf.size(x)) for x in at)
    # Of all images there are inputs, and results, which are fewer; of votes two slices.
    assert most_numbers(step(em.route_matrices), at) <= max(inputs, 2 * an_image)
    assert most_numbers(step(readable), at) >= images * an_image


@pytest.mark.long
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="JAX compiles all there is")
def test_compiled_it_is_the_same(monkeypatch):
    fields, options = ReceptiveFields(4, 4, 2), OPTIONS[0]
    at, added = problem(fields, shared=False, images=5)
    # Slices of two images, the last of them half empty.
    monkeypatch.setattr(em, "AT_ONCE", 2 * 9 * 8 * OUTPUTS * SIZE**2)
    plain = found(em.route_matrices, at, fields, options, added)

    def compiled(*at):
        return found(em.route_matrices, list(at), fields, options, added, True)

    graph = tf.function(compiled, autograph=False).get_concrete_function(*at)
    functions = graph.graph.as_graph_def().library.function
    assert any(f.attr["_XlaMustCompile"].b for f in functions)
    for ours, theirs in zip(graph(*at), plain):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_outside_of_graphs_nothing_is_compiled_at_each_call(monkeypatch):
    fields, options = ReceptiveFields(4, 4, 2), OPTIONS[0]
    at, added = problem(fields, shared=False, images=1)
    calls, function = [], tf.function
    monkeypatch.setattr(
        tf, "function", lambda *args, **kw: calls.append(kw) or function(*args, **kw)
    )
    em.route_matrices(*at, fields, options, added, compiled=True)
    assert calls == []


def test_in_float32_it_is_as_near_to_float64_as_the_readable_form():
    fields = ReceptiveFields(5, 5, 3)
    at, added = problem(fields, shared=False)
    exact = found(readable, at, fields, OPTIONS[0], added)
    at, _ = problem(fields, shared=False, dtype="float32")
    added = added.astype("float32")
    gaps = [
        max(
            np.abs(np.subtract(a, b)).max() / np.abs(b).max()
            for ours, theirs in zip(found(form, at, fields, OPTIONS[0], added), exact)
            for a, b in zip(ours, theirs)
        )
        for form in (em.route_matrices, readable)
    ]
    # The order of sums is all that differs.
    assert gaps[0] < 1e-5 and gaps[0] < 10 * gaps[1] + 1e-6, gaps


def test_children_that_are_off_have_finite_gradients():
    fields = ReceptiveFields(4, 4, 2)
    at, added = problem(fields, shared=False, dtype="float32")
    for scale in (1e-20, 1e6):
        pose, activation, *rest = at
        moved = [scale * pose, 0 * activation, *rest]
        for part in found(em.route_matrices, moved, fields, OPTIONS[0], scale * added):
            for x in part:
                assert np.isfinite(x).all()
