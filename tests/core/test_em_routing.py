"""EM routing against loops in NumPy (float64) that list children and parents.

Rejected: a competition over the children, or within a window only; parents that count children
twice; masses without the children's activations; a variance around another mean; a standard
deviation for a variance; a temperature of another iteration.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, softmax
from scipy.stats import norm

from keras_capsule_poe.functions import (
    EMOptions,
    ReceptiveFields,
    VariationalOptions,
    em_routing,
    variational_routing,
)
from keras_capsule_poe.models.matrix_capsules.routing import (
    e_step,
    em_steps,
    m_step,
)

# Float64 sums of a hundred terms of order one, in another order.
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
TYPES, PARENTS, SIZE = 2, 3, 4
GRIDS = pytest.mark.parametrize(
    "height, width, kernel, strides",
    [(5, 4, 3, 1), (5, 6, 3, 2), (4, 3, 2, 2), (3, 4, None, 1), (1, 1, 1, 1), (6, 5, 2, 3)],
)


# What variational routing has in common with it is tested here.
RULES = {
    "em": (em_routing, EMOptions(inverse_temperature=1.0, schedule="linear")),
    "variational": (variational_routing, VariationalOptions()),
}
BOTH_RULES = pytest.mark.parametrize("rule", RULES)


def windows(height, width, kernel, strides):
    """For each parent place the child places (y, x) that it sees, by counting."""
    rows, columns = (height, width) if kernel is None else (kernel, kernel)
    return [
        [(y + i, x + j) for i in range(rows) for j in range(columns)]
        for y in range(0, height - rows + 1, strides)
        for x in range(0, width - columns + 1, strides)
    ]


def problem(seed, seen):
    random = np.random.default_rng(seed)
    places, offsets = len(seen), len(seen[0])
    votes = random.normal(size=(2, places, offsets, TYPES, PARENTS, SIZE))
    return (
        votes,
        random.uniform(0.1, 1, size=(2, places, offsets, TYPES)),
        random.normal(size=(2, PARENTS)),
    )


def looped(votes, a, betas, seen, options):
    """Procedure 1 of the paper for one image, child by child; `a` (P, K, I)."""
    beta_u, beta_a = betas
    places, offsets = len(seen), len(seen[0])
    children = [(k, i) for k in range(offsets) for i in range(TYPES)]
    whose = {}
    for p in range(places):
        for k in range(offsets):
            for i in range(TYPES):
                for j in range(PARENTS):
                    rivals = (seen[p][k], i) + ((j,) if options.compete == "places" else ())
                    whose.setdefault(rivals, []).append((p, k, i, j))
    r = {slot: 1 / len(slots) for slots in whose.values() for slot in slots}
    mean = np.zeros((places, PARENTS, SIZE))
    variance, activation = np.zeros_like(mean), np.zeros((places, PARENTS))
    for t in range(options.routing_iterations):
        if t:
            for slots in whose.values():
                logs = [
                    np.log(activation[p, j])
                    + norm.logpdf(votes[p, k, i, j], mean[p, j], np.sqrt(variance[p, j])).sum()
                    for p, k, i, j in slots
                ]
                for slot, share in zip(
                    slots, softmax(np.divide(logs, options.assignment_temperature))
                ):
                    r[slot] = share
        for p in range(places):
            for j in range(PARENTS):
                weight = np.array([r[p, k, i, j] * a[p, k, i] for k, i in children])
                vote = np.array([votes[p, k, i, j] for k, i in children])
                new = np.average(vote, axis=0, weights=weight)
                mean[p, j] = (1 - options.damping) * new + options.damping * mean[p, j]
                spread = np.average((vote - mean[p, j]) ** 2, axis=0, weights=weight)
                variance[p, j] = spread + options.variance_floor
                cost = (beta_u[j] + np.log(np.sqrt(variance[p, j]))) * weight.sum()
                heat = options.inverse_temperature_at(t)
                activation[p, j] = expit(heat * (beta_a[j] - cost.sum()))
    return mean, activation, r


OPTIONS = [
    EMOptions(inverse_temperature=0.3, schedule="linear"),
    EMOptions(inverse_temperature=2.0, compete="places", damping=0.1, routing_iterations=2),
    EMOptions(inverse_temperature=0.5, assignment_temperature=3.0),
    EMOptions(routing_iterations=1, schedule="constant"),
]


@GRIDS
def test_it_is_the_procedure_child_by_child(height, width, kernel, strides):
    seen = windows(height, width, kernel, strides)
    fields = ReceptiveFields(height, width, kernel, strides)
    votes, a, betas = problem(0, seen)
    # A child has one activation, wherever it is seen.
    of_child = np.random.default_rng(1).uniform(0.1, 1, size=(2, height * width, TYPES))
    a = np.asarray(fields.gather(of_child))
    places = [[y * width + x for y, x in each] for each in seen]
    np.testing.assert_array_equal(fields.children, places)
    np.testing.assert_array_equal(a, of_child[:, np.array(places)])
    for options, image in itertools.product(OPTIONS, range(2)):
        found = em_routing(votes, a, *betas, fields, options)
        mean, activation, r = looped(votes[image], a[image], betas, seen, options)
        np.testing.assert_allclose(found.pose[image], mean, **CLOSE)
        np.testing.assert_allclose(found.activation[image], activation, **CLOSE)
        assignment = np.asarray(found.assignment[image])
        for slot, share in r.items():
            np.testing.assert_allclose(assignment[slot], share, **CLOSE)


@BOTH_RULES
def test_shares_of_a_child_sum_to_one_over_all_that_see_it(rule):
    route, options = RULES[rule]
    fields = ReceptiveFields(6, 5, kernel_size=3, strides=2)
    votes, _, betas = problem(0, windows(6, 5, 3, 2))
    a = np.ones(votes.shape[:4])
    found = route(votes, a, *betas, fields, options)
    totals = np.zeros((2, 30, TYPES))
    for p, each in enumerate(fields.children):
        for k, child in enumerate(each):
            totals[:, child] += np.asarray(found.assignment)[:, p, k].sum(axis=-1)
    # The last row is in no window of three rows at strides of two.
    np.testing.assert_allclose(totals[:, fields.parents > 0], 1, **CLOSE)
    assert np.array_equal(np.flatnonzero(fields.parents == 0), np.arange(25, 30))
    assert np.all(totals[:, fields.parents == 0] == 0)


@pytest.mark.parametrize("compete", ["all", "places"])
def test_its_steps_are_what_fewer_iterations_give(compete):
    """Rejects an assignment of the step after, and logarithms that end where r is zero."""
    fields = ReceptiveFields(5, 4, kernel_size=3)
    votes, a, betas = problem(3, windows(5, 4, 3, 1))
    options = {"inverse_temperature": 0.5, "compete": compete}
    steps = em_steps(votes, a, *betas, fields, EMOptions(routing_iterations=4, **options))
    assert len(steps) == 4
    for t, step in enumerate(steps):
        fewer = em_routing(votes, a, *betas, fields, EMOptions(routing_iterations=t + 1, **options))
        for ours, theirs in zip(step.routing, fewer, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(np.exp(step.log_assignment), fewer.assignment, **CLOSE)
    logits = 1e4 * votes[..., 0]
    found = fields.log_compete(logits, between=compete)
    assert np.isfinite(found).all() and np.min(found) < -1e4
    np.testing.assert_allclose(np.exp(found), fields.compete(logits, between=compete), **CLOSE)


@pytest.mark.parametrize(
    "schedule, rises",
    [
        ("official", [1 - 0.95, 1 - 0.95**2, 1 - 0.95**3]),
        ("linear", [1, 2, 3]),
        ("constant", [1, 1, 1]),
    ],
)
def test_lambda_rises(schedule, rises):
    options = EMOptions(schedule=schedule, inverse_temperature=0.3)
    found = [options.inverse_temperature_at(t) for t in range(3)]
    np.testing.assert_allclose(found, np.multiply(0.3, rises), **CLOSE)


def test_each_step_alone():
    """Rejects densities of another parent, weights that are left out, votes counted as points."""
    random = np.random.default_rng(9)
    votes, a = random.normal(size=(6, PARENTS, SIZE)), random.uniform(0.1, 1, size=6)
    r = softmax(random.normal(size=(6, PARENTS)), axis=-1)
    beta_u, log_a = random.normal(size=PARENTS), random.normal(size=PARENTS)
    clusters = m_step(r, a, votes, beta_u)
    logits = e_step(clusters, log_a, votes)
    for j in range(PARENTS):
        weights = r[:, j] * a
        mean = np.average(votes[:, j], axis=0, weights=weights)
        variance = np.average((votes[:, j] - mean) ** 2, axis=0, weights=weights) + 5e-4
        cost = (beta_u[j] + np.log(variance) / 2) * weights.sum()
        for found, expected in zip(clusters, (mean, variance, cost), strict=True):
            np.testing.assert_allclose(found[j], expected, **CLOSE)
        density = norm.logpdf(votes[:, j], mean, np.sqrt(variance)).sum(axis=-1)
        np.testing.assert_allclose(logits[:, j], log_a[j] + density, **CLOSE)


@BOTH_RULES
def test_gradients_go_through_all_iterations(rule):
    """Autodiff through the iterations against differences, in float64."""
    fields = ReceptiveFields(3, 3, kernel_size=2)
    votes, a, betas = problem(4, windows(3, 3, 2, 1))
    route, options = RULES[rule]
    weights = np.random.default_rng(5).normal(size=(2, 4, PARENTS, SIZE + 1))

    def value(*at):
        pose, activation, _ = route(*at, fields, options)
        found = tf.concat([pose, activation[..., None]], axis=-1)
        return tf.reduce_sum(found * weights)

    at = [tf.constant(x) for x in (votes, a, *betas)]
    with tf.GradientTape() as tape:
        tape.watch(at)
        loss = value(*at)
    slopes, random, h = tape.gradient(loss, at), np.random.default_rng(6), 1e-6
    for i, slope in enumerate(slopes):
        way = random.normal(size=slope.shape)
        above, below = ([*at[:i], at[i] + step * way, *at[i + 1 :]] for step in (h, -h))
        expected = (value(*above) - value(*below)) / (2 * h)
        # Central differences: an error of h^2, and rounding of 1e-16 / h.
        np.testing.assert_allclose(np.sum(slope * way), expected, rtol=1e-6)


@BOTH_RULES
def test_what_lies_far_away_and_what_is_off_stays_finite(rule):
    route = RULES[rule][0]
    options = EMOptions(inverse_temperature=1e3) if rule == "em" else VariationalOptions()
    fields = ReceptiveFields(3, 3, kernel_size=2)
    votes, a, betas = problem(7, windows(3, 3, 2, 1))
    for scale in (1e-20, 1e8):
        for activation in (np.zeros_like(a), a):
            at = [tf.constant(x, "float32") for x in (scale * votes, activation, *betas)]
            with tf.GradientTape() as tape:
                tape.watch(at)
                found = route(*at, fields, options)
                loss = tf.reduce_sum(found.pose / scale) + tf.reduce_sum(found.activation)
            for x in (*found, *tape.gradient(loss, at)):
                assert np.isfinite(x).all()


def test_half_precision_is_raised():
    fields = ReceptiveFields(3, 3, kernel_size=2)
    votes, a, betas = problem(8, windows(3, 3, 2, 1))
    found = em_routing(
        *(keras.ops.cast(x, "float16") for x in (votes, a)), *betas.astype("float32"), fields
    )
    assert {keras.backend.standardize_dtype(x.dtype) for x in found} == {"float32"}


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"routing_iterations": 0},
            "`routing_iterations` must be a positive integer. Received: routing_iterations=0",
        ),
        ({"schedule": "fast"}, "`schedule` must be 'official' or 'linear' or 'constant'"),
        ({"compete": "types"}, "`compete` must be 'all' or 'places'. Received: compete='types'"),
        ({"damping": 1.0}, r"`damping` must lie in \[0, 1\). Received: damping=1.0"),
        ({"variance_floor": 0}, "`variance_floor` must be a number above 0"),
        ({"inverse_temperature": -1}, "`inverse_temperature` must be a number above 0"),
        ({"assignment_temperature": 0}, "`assignment_temperature` must be a number above 0"),
    ],
)
def test_options_without_a_meaning_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EMOptions(**options)


def test_windows_must_fit():
    with pytest.raises(ValueError, match="`kernel_size` must fit.*kernel_size=4, grid 3x5"):
        ReceptiveFields(3, 5, kernel_size=4)
