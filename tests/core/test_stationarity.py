"""Boltzmann machines small enough to enumerate: the chain's stationary law and its gradient.

Four binary visible and three binary hidden neurons: p(v) over 16 states is exp(-F(v)) / Z. Each
wrong version that is named here is shown to fail, so that the tests can fail.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.functions import (
    BinaryUnits,
    BlockMaps,
    CapsuleUnits,
    DenseMaps,
    EinsumMaps,
    GaussianUnits,
    Router,
    RoutingOptions,
    chain_step,
    contrastive_divergence,
)

D, E, CHAINS = 4, 4, 20_000
STATES = np.array(list(itertools.product((0.0, 1.0), repeat=D)))
HIDDEN = np.array(list(itertools.product((0.0, 1.0), repeat=E)))
BINARY = {"hidden": BinaryUnits(), "visible": BinaryUnits()}


def machine(seed=0):
    """Weights (E, D) and the biases of the hidden and the visible neurons."""
    random = np.random.default_rng(seed)
    return (
        1.5 * random.normal(size=(E, D)),
        {"hidden_bias": random.normal(size=E), "visible_bias": random.normal(size=D)},
    )


def log_weights(w, hidden_bias, visible_bias):
    """log sum_h exp(-E(v, h)) of every v, term by term: -E = h W v + b h + a v."""
    energies = HIDDEN @ w @ STATES.T + (HIDDEN @ hidden_bias)[:, None] + STATES @ visible_bias
    return np.log(np.exp(energies).sum(axis=0))


def law(w, biases):
    weights = np.exp(log_weights(w, **biases))
    return weights / weights.sum()


def at_the_law(w, biases):
    """Chains that start exactly at p."""
    drawn = np.random.default_rng(1).choice(len(STATES), CHAINS, p=law(w, biases))
    return STATES[drawn]


def variation(chains, p):
    """Total variation between where chains are and p."""
    index = (chains @ 2 ** np.arange(D)[::-1]).astype(int)
    return np.abs(np.bincount(index, minlength=len(p)) / len(chains) - p).sum() / 2


def floor(p):
    """What the total variation of as many independent draws of p is, on average."""
    return np.sqrt(2 / np.pi * p * (1 - p) / CHAINS).sum() / 2


class TwiceDown(DenseMaps):
    """Wrong: a factor of two in what the visible neurons receive."""

    def down(self, c, y):
        return 2 * super().down(c, y)


class NotTransposed(DenseMaps):
    """Wrong: W on the way down."""

    def down(self, c, y):
        return super().up(c, y)


def walked(maps, biases, **kwargs):
    """Chains that start at p, after five steps."""
    x = at_the_law(*machine())
    for step in range(5):
        x = np.asarray(chain_step(maps, x, seed=step, **BINARY, **biases, **kwargs))
    return x


def test_chains_that_start_at_the_law_stay_there():
    w, biases = machine()
    p = law(w, biases)
    assert variation(at_the_law(w, biases), p) < 4 * floor(p)
    assert variation(walked(DenseMaps(w), biases), p) < 4 * floor(p)


@pytest.mark.parametrize(
    "wrong", ["factor", "hidden sign", "visible sign", "no bias", "transposed"]
)
def test_chains_of_wrong_versions_leave_it(wrong):
    w, biases = machine()
    maps = {"factor": TwiceDown, "transposed": NotTransposed}.get(wrong, DenseMaps)(w)
    changed = dict(biases)
    for name in ("hidden", "visible"):
        if wrong == f"{name} sign":
            changed[f"{name}_bias"] = -biases[f"{name}_bias"]
    if wrong == "no bias":
        changed = {}
    p = law(w, biases)
    assert variation(walked(maps, changed), p) > 8 * floor(p)


def gradients(step):
    return [np.asarray(part) for part in (step.gradient, step.hidden_bias, step.visible_bias)]


def exact_gradients(w, biases, data):
    """Finite differences of the mean log p(data), exact to h^2 = 1e-10."""
    flat = np.concatenate([w.ravel(), biases["hidden_bias"], biases["visible_bias"]])
    index = (data @ 2 ** np.arange(D)[::-1]).astype(int)

    def value(flat):
        logs = log_weights(flat[: E * D].reshape(E, D), flat[E * D : -D], flat[-D:])
        return logs[index].mean() - np.log(np.exp(logs).sum())

    moves = 1e-5 * np.eye(len(flat))
    slopes = np.array([(value(flat + m) - value(flat - m)) / 2e-5 for m in moves])
    return slopes[: E * D].reshape(E, D), slopes[E * D : -D], slopes[-D:]


def infinite_steps(maps, biases, data):
    """CD with the model term where the chain goes for k to infinity: chains drawn from p."""
    w, true = machine()
    return contrastive_divergence(
        maps, data, chains=at_the_law(w, true), seed=3, **BINARY, **biases
    )


def errors(got, exact):
    return max(np.abs(a - b).max() for a, b in zip(got, exact))


# Means of 20,000 numbers between zero and one have a standard error of at most 0.0035.
CLOSE = 4 * 0.0035


def test_with_chains_at_the_law_the_gradient_is_that_of_the_likelihood():
    w, biases = machine()
    data = STATES[np.random.default_rng(2).integers(len(STATES), size=10)]
    exact = exact_gradients(w, biases, data)
    assert errors(gradients(infinite_steps(DenseMaps(w), biases, data)), exact) < CLOSE
    for wrong in (TwiceDown(w), NotTransposed(w)):
        assert errors(gradients(infinite_steps(wrong, biases, data)), exact) > 2 * CLOSE
    flipped = {name: -bias for name, bias in biases.items()}
    assert errors(gradients(infinite_steps(DenseMaps(w), flipped, data)), exact) > 2 * CLOSE
    # A stale h: the model term pairs the new v with what the hidden neurons had from the data.
    step = contrastive_divergence(DenseMaps(w), at_the_law(w, biases), seed=3, **BINARY, **biases)
    mean = BinaryUnits().mean
    right, stale = (
        np.asarray(mean(z)).T @ np.asarray(step.reconstruction) / CHAINS
        for z in (step.z_model, step.z)
    )
    pairs = np.einsum(
        "v,ve,vd->ed", law(w, biases), mean(STATES @ w.T + biases["hidden_bias"]), STATES
    )
    assert np.abs(right - pairs).max() < CLOSE < 2 * CLOSE < np.abs(stale - pairs).max()


def test_the_positive_phase_is_the_slope_of_the_log_weights():
    w, biases = machine()
    for state in STATES[[3, 9]]:
        one = contrastive_divergence(DenseMaps(w), state[None], **BINARY, **biases)
        h = 1 / (1 + np.exp(-(w @ state + biases["hidden_bias"])))
        v = np.asarray(one.reconstruction)[0]
        h_model = 1 / (1 + np.exp(-(w @ v + biases["hidden_bias"])))
        np.testing.assert_allclose(v, 1 / (1 + np.exp(-(h @ w + biases["visible_bias"]))))
        expected = np.outer(h, state) - np.outer(h_model, v), h - h_model, state - v
        for part, value in zip(gradients(one), expected):
            np.testing.assert_allclose(part, value, atol=1e-14)


def test_a_gaussian_visible_layer_has_the_conditionals_moments():
    w, biases = machine()
    h = np.repeat(HIDDEN[[5]], CHAINS, axis=0)
    drawn = np.asarray(GaussianUnits().sample(h @ w + biases["visible_bias"], seed=0))
    # Standard errors of 20,000 draws: 0.007 of the mean, 0.01 of the variances.
    assert np.abs(drawn.mean(axis=0) - (HIDDEN[5] @ w + biases["visible_bias"])).max() < 0.03
    assert np.abs(np.cov(drawn.T) - np.eye(D)).max() < 0.05


@pytest.mark.parametrize(
    "units", [CapsuleUnits(), BinaryUnits(), GaussianUnits()], ids=lambda u: type(u).__name__
)
def test_units_against_their_free_energy(units):
    """The score is -dF/dz; odds and probability are those of exp(-F)."""
    z = np.random.default_rng(0).normal(size=(6, 5, 3))
    score, h = np.asarray(units.score(z)), 1e-5
    for e in range(3):
        move = h * np.eye(3)[e]
        slope = (
            np.asarray(units.free_energy(z - move)) - np.asarray(units.free_energy(z + move))
        ) / (2 * h)
        np.testing.assert_allclose(score[..., e], slope, atol=1e-9)
    odds = np.expm1(-np.asarray(units.free_energy(z)))
    np.testing.assert_allclose(np.exp(units.log_odds(z)), odds, rtol=1e-10)
    np.testing.assert_allclose(units.probability(z), odds / (1 + odds), rtol=1e-10)
    turned = np.moveaxis(z, -1, 1)
    for verb in ("mean", "score"):
        moved = getattr(units, verb)(turned, axis=1)
        np.testing.assert_allclose(np.moveaxis(moved, 1, -1), getattr(units, verb)(z), rtol=1e-12)
    for extreme in (-200.0, 0.0, 200.0, 1e4):
        assert np.isfinite(units.log_odds(np.full((1, 3), extreme, "float32"))).all()


@pytest.mark.parametrize("steps", [1, 3])
def test_one_capsule_a_side_is_a_boltzmann_machine(steps):
    w, biases = machine()
    x = np.random.default_rng(0).uniform(size=(7, D))
    dense = contrastive_divergence(DenseMaps(w), x, cd_steps=steps, **BINARY, **biases)
    for form in (EinsumMaps, BlockMaps):
        step = contrastive_divergence(
            form(w[None, None]),
            x[:, None],
            np.ones((7, 1, 1)),
            cd_steps=steps,
            **BINARY,
            **{name: bias[None] for name, bias in biases.items()},
        )
        for one, other in zip(step, dense):
            np.testing.assert_allclose(np.reshape(one, np.shape(other)), other, atol=1e-12)


@pytest.mark.some(3)
@pytest.mark.parametrize("units", [CapsuleUnits(), BinaryUnits()], ids=lambda u: type(u).__name__)
@pytest.mark.parametrize("shape", [(9, 3, 2, 8), (3, 9, 8, 2)])
def test_blocks_in_slices_are_einsums(units, shape, monkeypatch):
    """Also where the last slice is filled up, and units send and score at zero."""
    monkeypatch.setattr("keras_capsule_poe.core.fused.blocks.BLOCK", 50)
    i, j, d, e = shape
    random = np.random.default_rng(0)
    w, x = random.normal(size=(i, j, e, d)), random.uniform(size=(7, i, d))
    c, chains = random.uniform(size=(7, i, j)), random.uniform(size=(7, i, d))
    assert BlockMaps(w).images_at_once() < 7
    given = {
        "hidden": units,
        "visible": units,
        "cd_steps": 2,
        "hidden_bias": random.normal(size=(j, e)),
        "visible_bias": random.normal(size=(i, d)),
    }
    for start in (None, chains):
        pair = (
            contrastive_divergence(form(w), x, c, chains=start, **given)
            for form in (EinsumMaps, BlockMaps)
        )
        for one, other in zip(*pair):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-10)


def test_persistent_chains_carry_on():
    w, biases = machine()
    data, start = STATES[:6], STATES[[1, 2]]
    step = contrastive_divergence(DenseMaps(w), data, chains=start, cd_steps=2, **BINARY, **biases)
    assert step.z.shape == (6, E) and step.reconstruction.shape == (2, D)
    again = contrastive_divergence(
        DenseMaps(w), data, chains=step.reconstruction, **BINARY, **biases
    )
    whole = contrastive_divergence(DenseMaps(w), data, chains=start, cd_steps=3, **BINARY, **biases)
    np.testing.assert_allclose(again.reconstruction, whole.reconstruction, rtol=1e-12)
    # Where chains are does not depend on the data.
    other = contrastive_divergence(
        DenseMaps(w), data[:1], chains=start, cd_steps=2, **BINARY, **biases
    )
    np.testing.assert_allclose(other.reconstruction, step.reconstruction, rtol=1e-12)


def test_chains_of_a_batch_whose_size_is_not_known():
    """Rejects a check of sizes that takes an unknown one for another."""
    kernel, x = np.ones((1, 1, E, D)), STATES[:2, None]

    def step(x, c):
        maps = EinsumMaps(kernel)
        return contrastive_divergence(maps, x, c, chains=STATES[2:4, None], **BINARY).gradient

    sizes = [tf.TensorSpec((None, 1, D), "float64"), tf.TensorSpec((None, 1, 1), "float64")]
    graph = tf.function(step, input_signature=sizes, autograph=False)
    np.testing.assert_allclose(graph(x, np.ones((2, 1, 1))), step(x, np.ones((2, 1, 1))))


@pytest.mark.long
def test_draws_depend_on_the_seed_and_differ_between_slices(monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.core.fused.blocks.BLOCK", 50)
    x, c = np.full((40, 3, 4), 0.5), np.ones((40, 3, 5))
    maps = BlockMaps(np.zeros((3, 5, 4, 4)))
    one, same, other = (np.asarray(chain_step(maps, x, c, seed=s, **BINARY)) for s in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    # 40 images of twelve fair coins: equal images would come from equal streams.
    assert len(np.unique(one.reshape(40, -1), axis=0)) > 35


def test_what_cannot_be_done_is_said():
    w, x = np.ones((E, D)), STATES[:2]
    with pytest.raises(ValueError, match=r"CapsuleUnits.*seed=None.*Received: seed=0"):
        contrastive_divergence(DenseMaps(w), x, seed=0)
    with pytest.raises(ValueError, match=r"`coefficients`.*Received: coefficients=None"):
        contrastive_divergence(EinsumMaps(w[None, None]), x[:, None])
    kernel = w[None, None]
    other = Router(BlockMaps(kernel), RoutingOptions(routing_iterations=2))
    with pytest.raises(ValueError, match="same kind. Received: a Router over BlockMaps, and Ein"):
        contrastive_divergence(EinsumMaps(kernel), x[:, None], routing=other)
    with pytest.raises(ValueError, match="`coefficients` must be a tensor: give a router as `rout"):
        contrastive_divergence(EinsumMaps(kernel), x[:, None], other)
    with pytest.raises(ValueError, match="`coefficients` must be None if `routing` is given"):
        ones, same = (
            np.ones((2, 1, 1)),
            Router(EinsumMaps(kernel), RoutingOptions(routing_iterations=2)),
        )
        contrastive_divergence(EinsumMaps(kernel), x[:, None], ones, same)
    with pytest.raises(ValueError, match="`chains` must be as many.*Received: 3 chains, 2 images"):
        contrastive_divergence(
            EinsumMaps(kernel), x[:, None], np.ones((2, 1, 1)), chains=STATES[:3, None]
        )
    for steps in (0, 1.0, True):
        with pytest.raises(ValueError, match=r"`cd_steps` must be a positive integer. Received"):
            contrastive_divergence(DenseMaps(w), x, cd_steps=steps, **BINARY)
