"""A restricted Boltzmann machine fitted to arrays: learning, resume, seeds, files."""

import itertools

import keras
import numpy as np
import pytest

from keras_capsule_poe import HarmoniumModel, RestrictedBoltzmannMachine
from keras_capsule_poe.core.mcmc import exchange_log_odds
from keras_capsule_poe.functions import enumerated_log_partition

SIDE = 3


def bars_and_stripes():
    """The 14 images of 3x3 whose rows, or columns, are each of one colour."""
    lines = list(itertools.product((0.0, 1.0), repeat=SIDE))
    rows = {tuple(np.repeat(line, SIDE)) for line in lines}
    return np.array(sorted(rows | {tuple(np.tile(line, SIDE)) for line in lines}), "float32")


def build(
    algorithm="pcd", visible="bernoulli", seed=0, rate=0.1, machine=None, at_once=1, **kwargs
):
    keras.utils.set_random_seed(seed)
    start = keras.initializers.RandomNormal(stddev=0.1, seed=seed)
    layer = RestrictedBoltzmannMachine(8, visible, kernel_initializer=start, **(machine or {}))
    model = HarmoniumModel(layer, algorithm=algorithm, seed=seed, **kwargs)
    model.compile(keras.optimizers.SGD(rate), jit_compile=False, steps_per_execution=at_once)
    return model


def likelihood(model, v):
    """Exact mean log p(v), nats."""
    machine = model.machine
    return machine.log_likelihood(v, enumerated_log_partition(machine.harmonium()))[0]


def data(n=64, neurons=6):
    random = np.random.default_rng(0)
    return (random.uniform(size=(n, neurons)) < np.linspace(0.1, 0.9, neurons)).astype("float32")


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_bars_and_stripes_are_learned(seed):
    v = bars_and_stripes()
    assert len(v) == 14
    rate = keras.optimizers.schedules.CosineDecay(0.4, 2500)
    model = build(persistent_chains=100, seed=seed, rate=rate, at_once=50)
    model.fit(np.tile(v, (2500, 1)), batch_size=14, shuffle=False, verbose=0)
    # No model of 14 equal images does better than -log 14.
    assert -np.log(14) - 0.25 <= likelihood(model, v) < -np.log(14)


def weights(model):
    return [np.asarray(weight) for weight in model.weights]


KINDS = [
    {"algorithm": "cd", "cd_steps": 2},
    {
        "algorithm": "pcd",
        "persistent_chains": 10,
        "chains_initializer": "noise",
        "binarize": "stochastic",
    },
    {"algorithm": "pt", "persistent_chains": 5, "temperatures": 2},
]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_a_run_that_was_stopped_ends_as_one_that_was_not(kind, tmp_path):
    v = data()
    whole, first = build(**kind), build(**kind)
    whole.fit(v, batch_size=16, epochs=4, shuffle=False, verbose=0)
    first.fit(v, batch_size=16, epochs=2, shuffle=False, verbose=0)
    first.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    again.fit(v, batch_size=16, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(weights(whole), weights(again), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_other_chains_or_another_seed_end_elsewhere():
    """So that equal ends are no accident."""
    v, runs = data(), []
    for forgets, seed in ((False, 0), (True, 0), (False, 1)):
        model = build(persistent_chains=10)
        model.seed = seed
        model.fit(v, batch_size=16, shuffle=False, verbose=0)
        if forgets:
            model.age.assign(0)
        model.fit(v, batch_size=16, shuffle=False, verbose=0)
        runs.append(np.asarray(model.machine.kernel))
    for run in runs[1:]:
        assert np.abs(runs[0] - run).max() > 1e-4


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "algorithm, visible",
    [
        ("cd", "bernoulli"),
        pytest.param("pt", "bernoulli", marks=pytest.mark.long),
        ("pcd", "gaussian"),
        pytest.param("pcd", "unit", marks=pytest.mark.long),
    ],
)
def test_training_raises_the_likelihood(algorithm, visible, no_autodiff):
    v = data()
    if visible == "gaussian":
        v = v * [5, 1, 2, 0.1, 1, 1] + np.random.default_rng(1).normal(size=v.shape) / 3
    if visible == "unit":
        v = np.clip(v, 0.1, 0.8)
    v[:, 3] = v[:, 2]  # something that the biases cannot model
    v = v.astype("float32")
    rate = 0.05 if visible == "gaussian" else 0.5
    model = build(algorithm, visible, rate=rate, persistent_chains=32, temperatures=3)
    model.adapt(v)
    before = likelihood(model, v)
    history = model.fit(np.tile(v, (80, 1)), batch_size=16, verbose=0).history
    after = likelihood(model, v)
    assert after > before + 0.05
    assert np.isfinite(history["loss"]).all() and np.isfinite(history["free_energy"]).all()
    if algorithm == "pt":
        assert 0.1 < history["exchange_rate"][-1] < 1
    assert set(model.evaluate(v, verbose=0, return_dict=True)) >= {"loss", "free_energy"}


def particles_from_the_law(algorithm, scale, seed=0):
    """Total variation of particles from p(v) after 60 steps from noise, over that of exact draws.

    The weights stay and the centre moves, which does not change p(v).
    """
    chains = 20_000
    model = build(
        algorithm,
        persistent_chains=chains,
        chains_initializer="noise",
        rate=0.0,
        temperatures=4,
        seed=seed,
    )
    model.build((None, 4))
    random = np.random.default_rng(seed)
    model.machine.kernel.assign(scale * random.normal(size=(8, 4)))
    model.machine.visible_bias.assign(random.normal(size=4))
    model.fit(data(600, 4), batch_size=10, verbose=0)
    v = np.array(list(itertools.product((0.0, 1.0), repeat=4)), "float32")
    p = np.exp(-np.asarray(model.free_energy(v), "float64"))
    p /= p.sum()
    where = np.rint(np.asarray(model.chain_states)[0] @ [8, 4, 2, 1]).astype(int)
    distance = np.abs(np.bincount(where, minlength=16) / chains - p).sum() / 2
    return distance / (np.sqrt(2 / np.pi * p * (1 - p) / chains).sum() / 2)


@pytest.mark.some(2)
@pytest.mark.parametrize("algorithm, scale", [("pcd", 1.5), ("pt", 4.0)])
def test_persistent_chains_go_to_the_law(algorithm, scale):
    assert particles_from_the_law(algorithm, scale) < 4


@pytest.mark.long
def test_wrong_exchanges_are_noticed(monkeypatch):
    """Chains that exchange always, whatever their temperatures."""

    def always(free_energy, x, betas, seed, odd=False):
        partner, odds = exchange_log_odds(free_energy, x, betas, odd)
        return keras.ops.take(x, partner, axis=0), 0 * odds < 1

    monkeypatch.setattr("keras_capsule_poe.models.boltzmann.model.replica_exchange", always)
    assert particles_from_the_law("pt", 4.0) > 8


def test_without_learning_the_variances_stay():
    model = build(visible="gaussian", machine={"learn_variance": False})
    v = 3 * data()
    model.adapt(v)
    before = np.asarray(model.machine.log_variance)
    model.fit(v, batch_size=16, verbose=0)
    np.testing.assert_array_equal(model.machine.log_variance, before)


def test_the_centre_follows_the_data():
    model = build("cd", offset_rate=0.1, rate=0.01)
    v = data(256)
    model.fit(v, batch_size=32, epochs=20, verbose=0)
    # A moving mean of 32 images each of which weighs a tenth: deviation of sqrt(.25/32/19).
    np.testing.assert_allclose(model.machine.visible_offset, v.mean(axis=0), atol=5 * 0.021)
    p = np.asarray(model.machine(v)).mean(axis=0)
    np.testing.assert_allclose(model.machine.hidden_offset, p, atol=0.05)


@pytest.mark.parametrize("binarize", ["stochastic", "threshold", None])
def test_data_are_made_binary(binarize):
    v = np.full((2000, 6), 0.7, "float32")
    model = build("cd", binarize=binarize, offset_rate=1.0, rate=1e-9)
    model.fit(v, batch_size=2000, verbose=0)
    mean = np.asarray(model.machine.visible_offset)
    if binarize == "threshold":
        np.testing.assert_allclose(mean, 1)
    else:  # a binomial deviation of 0.0102
        np.testing.assert_allclose(mean, 0.7, atol=0.05)
        assert (np.ptp(mean) > 1e-3) == (binarize == "stochastic")


@pytest.mark.long
def test_weight_decay_pulls_the_weights_alone():
    v, kernels, biases = data(), [], []
    for decay in (0.0, 0.1):
        options = {"chains_initializer": "noise", "machine": {"centering": False}}
        model = build("cd", weight_decay=decay, rate=0.5, **options)
        model.build((None, 6))
        start = np.asarray(model.machine.kernel)
        model.fit(v, batch_size=64, verbose=0)
        kernels.append(np.asarray(model.machine.kernel))
        biases.append(np.asarray(model.machine.visible_bias))
    np.testing.assert_allclose(kernels[0] - kernels[1], 0.5 * 0.1 * start, atol=1e-6)
    np.testing.assert_array_equal(*biases)


def test_samples_are_binary_and_follow_the_seed():
    model = build("cd")
    model.build((None, 6))
    one, same, other = (np.asarray(model.sample(20, steps=5, seed=s)) for s in (0, 0, 1))
    assert one.shape == (20, 6)
    np.testing.assert_allclose(one, np.rint(one), atol=1e-6)
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_offsets_may_stay_where_they_are():
    assert build("cd", offset_rate=0).offset_rate == 0.0


def test_what_is_refused():
    layer = RestrictedBoltzmannMachine(3)
    with pytest.raises(ValueError, match="`machine` must be.*Received: machine=3"):
        HarmoniumModel(3)
    for name, value in (
        ("algorithm", "ml"), ("cd_steps", 0), ("persistent_chains", 0),
        ("chains_initializer", "here"),
        ("temperatures", 1), ("binarize", "round"), ("weight_decay", "no"),
        ("weight_decay", -0.1), ("offset_rate", -0.1), ("offset_rate", 1.1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"`{name}` must .*Received: {name}={value!r}"):
            HarmoniumModel(layer, **{name: value})


def test_only_what_is_to_be_made_binary_is():
    """Rejects False as a way to make data binary, and densities of data that are."""
    layer = RestrictedBoltzmannMachine(3)
    for value in (False, "", 0):
        with pytest.raises(ValueError, match="`binarize` must be 'stochastic' or 'threshold'"):
            HarmoniumModel(layer, binarize=value)
    with pytest.raises(ValueError, match="`binarize` must be None where neurons are 'gaussian'"):
        HarmoniumModel(RestrictedBoltzmannMachine(3, "gaussian"), binarize="stochastic")


@pytest.mark.parametrize("steps", [0, -5])
def test_no_steps_are_refused(steps):
    """Rejects one step in the place of none."""
    model = build()
    model.build((None, 4))
    with pytest.raises(ValueError, match=f"`steps` must be .*Received: steps={steps}"):
        model.sample(3, steps=steps)
