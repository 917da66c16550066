"""Expert neurons as a layer: the gradient and the chain, exactly, of coefficients that are held.

Wrong versions that these tests reject, and `test_mutants` runs: W not transposed on the way down,
a chain that is routed anew, the bias left out of the data's term, and s for s^2.
"""

import itertools

import keras
import numpy as np
import pytest
from scipy.special import logsumexp
from theory.routed_chain import corrected_step

from keras_capsule_poe import NeuronPoE

READINGS = NeuronPoE.READINGS

I, D, J, E = 3, 2, 2, 2
every_centre = pytest.mark.parametrize("centering", [False, True])


def flat(x):
    return np.asarray(x).reshape(len(x), -1)


def bits(number):
    return np.array(list(itertools.product((0.0, 1.0), repeat=number)))


def conditional_law(experts, c):
    """log P(v | c) of every v, up to a constant, term by term."""
    w, a, b = (np.asarray(p) for p in (experts.kernel, experts.hidden_bias, experts.visible_bias))
    mu = lam = 0.0
    if experts.centering:
        mu, lam = np.asarray(experts.visible_offset), np.asarray(experts.hidden_offset)
    v, h = bits(I * D).reshape(-1, I, D), bits(J * E).reshape(-1, J, E)
    x, y = v - mu, h - lam
    pairs = np.einsum("ij,hje,ijed,vid->vh", c, y, w, x)
    energies = np.einsum("vid,id->v", x, b)[:, None] + np.einsum("hje,je->h", y, a)[None] + pairs
    return logsumexp(energies, axis=1)


def check_gradient(experts, data, divergence_of, h=1e-5):
    """Data less enumerated model, against slopes of the exact mean log P(v_n | c_n)."""
    held = [np.asarray(c) for c in np.asarray(experts.route(data).coefficients)]
    every = bits(I * D).reshape(-1, I, D)

    def log_likelihood():
        total = 0.0
        for v, c in zip(data, held):
            logs = conditional_law(experts, c)
            index = int(np.flatnonzero((every == v).all(axis=(1, 2)))[0])
            total += (logs[index] - logsumexp(logs)) / len(data)
        return total

    found = divergence_of(experts, data, held, every)
    for name, gradient in zip(("kernel", "hidden_bias", "visible_bias"), found):
        variable = getattr(experts, name)
        start, slopes = np.asarray(variable).copy(), np.zeros(variable.shape)
        for index in np.ndindex(*variable.shape):
            values = []
            for step in (h, -h):
                moved = start.copy()
                moved[index] += step
                variable.assign(moved)
                values.append(log_likelihood())
            variable.assign(start)
            slopes[index] = (values[0] - values[1]) / (2 * h)
        np.testing.assert_allclose(gradient, slopes, atol=1e-8)


def exact_gradient(experts, data, held, every, route=None):
    """The library's statistics at the data less those at every v, by P(v | c_n)."""
    found = [0.0, 0.0, 0.0]
    for v, c in zip(data, held):
        p = np.exp(conditional_law(experts, c))
        chains = np.concatenate([v[None], every])
        signs = np.concatenate([[1.0], -p / p.sum()]) / len(data)
        for state, sign in zip(chains, signs):
            for total, part in enumerate(statistics(experts, state, c if route is None else route)):
                found[total] = found[total] + sign * part
    return found


def statistics(experts, v, c):
    """Of one v, what `contrastive_divergence` adds up, from its difference with a zero term."""
    coefficients = np.asarray(experts.route(v[None]).coefficients)[0] if isinstance(c, str) else c
    z = np.asarray(experts.harmonium(coefficients[None]).fields(experts.sent(v[None])))
    score = np.asarray(experts.neuron_units()[0].score(z))[0]
    x = np.asarray(experts.sent(v[None]))[0]
    return np.einsum("ij,je,id->ijed", coefficients, score, x), score, x


@pytest.mark.some(3)
@every_centre
@pytest.mark.parametrize("routing", ["fixed", "held"])
def test_gradient_of_the_likelihood_given_the_routing(
    neuron_layer, neuron_images, routing, centering
):
    experts = neuron_layer(routing, centering=centering)
    check_gradient(experts, neuron_images(n=3), exact_gradient)


def test_the_update_is_these_statistics(neuron_layer, neuron_images):
    """One step of mean-field contrastive divergence, term by term, one routing throughout."""
    experts, v = neuron_layer("held"), neuron_images()
    found = experts.contrastive_divergence(v)
    c = np.asarray(experts.route(v).coefficients)
    back = np.asarray(experts.reconstruct(v, c))
    for index, name in enumerate(("gradient", "hidden_bias", "visible_bias")):
        terms = [
            statistics(experts, a, k)[index] - statistics(experts, b, k)[index]
            for a, b, k in zip(v, back, c)
        ]
        np.testing.assert_allclose(getattr(found, name), np.mean(terms, axis=0), atol=1e-12)


@every_centre
@pytest.mark.parametrize("routing", READINGS)
def test_both_implementations_give_the_same_update(neuron_layer, neuron_images, routing, centering):
    v, found = neuron_images(), []
    for implementation in ("reference", "fused"):
        experts = neuron_layer(routing, centering=centering, implementation=implementation)
        found.append(experts.contrastive_divergence(v, cd_steps=2))
        found[-1] += (experts(v), experts.free_energy(v))
    for plain, streamed in zip(*found):
        np.testing.assert_allclose(plain, streamed, atol=1e-12)


def test_the_update_does_not_depend_on_the_batch_s_size(neuron_layer, neuron_images):
    experts, v = neuron_layer("held"), neuron_images()
    whole = experts.contrastive_divergence(v).gradient
    single = [np.asarray(experts.contrastive_divergence(x[None]).gradient) for x in v]
    np.testing.assert_allclose(whole, np.mean(single, axis=0), atol=1e-12)


def transition(experts, c):
    """T(v -> v') of a Gibbs step, of the library's conditionals, c (I, J) or one for each v."""
    v, h = bits(I * D).reshape(-1, I, D), bits(J * E).reshape(-1, J, E)
    c = np.broadcast_to(c, (len(v), I, J))
    machine = experts.harmonium(c)
    hidden, visible = (getattr(units, "offset", 0) for units in experts.neuron_units())
    up = np.asarray(machine.hidden.mean(machine.fields(experts.sent(v)))) + hidden
    t = np.zeros((len(v), len(v)))
    back = machine.transposed()
    for state in h:
        y = np.repeat(state[None] - hidden, len(v), 0)
        down = np.asarray(back.hidden.mean(back.fields(y))) + visible
        t += _bernoulli(up, state)[:, None] * np.stack([_bernoulli(down, s) for s in v], axis=1)
    return t


def _bernoulli(means, state):
    return np.where(state == 1, means, 1 - means).prod(axis=(1, 2))


def check_detailed_balance(experts, c, t):
    p = np.exp(conditional_law(experts, c))
    flow = (p / p.sum())[:, None] * t
    np.testing.assert_allclose(flow, flow.T, atol=1e-13)


@every_centre
def test_gibbs_sampling_with_held_coefficients_is_in_detailed_balance(
    neuron_layer, neuron_images, centering
):
    experts = neuron_layer("held", centering=centering)
    c = np.asarray(experts.route(neuron_images()).coefficients)[0]
    check_detailed_balance(experts, c, transition(experts, c))


def test_a_chain_that_is_routed_anew_is_no_sampler(neuron_layer):
    """Its law is more than .05 in total variation from that of the energy with routed c."""
    experts = neuron_layer(
        "held", routing_iterations=4, agreement_scale=3.0, coefficient_sum=2.0, seed=2
    )
    v = bits(I * D).reshape(-1, I, D)
    routed = np.asarray(experts.route(v).coefficients)
    p = np.exp([conditional_law(experts, c)[n] for n, c in enumerate(routed)])
    law = np.linalg.matrix_power(transition(experts, routed), 4096)[0]
    assert np.abs(law - p / p.sum()).sum() / 2 > 0.05


def test_the_corrected_chain_draws_from_the_energy_with_routed_coefficients(neuron_layer):
    """30,000 chains that start at its law, 8 steps: total variation below 4 floors."""
    experts, number = (
        neuron_layer(
            "held", routing_iterations=4, agreement_scale=3.0, coefficient_sum=2.0, seed=2
        ),
        30_000,
    )
    v = bits(I * D).reshape(-1, I, D)
    routed = np.asarray(experts.route(v).coefficients)
    p = np.exp([conditional_law(experts, c)[n] for n, c in enumerate(routed)])
    p /= p.sum()
    x = v[np.random.default_rng(0).choice(len(p), number, p=p)]

    def route(x):
        return experts.route(x).coefficients

    machine, kept = experts.harmonium(), route(x)
    for step in range(8):
        x, kept, has_moved = corrected_step(route, machine, x, kept, seed=step)
    assert 0.2 < np.mean(has_moved) < 1
    numbers = flat(x).astype(int) @ 2 ** np.arange(I * D)[::-1]
    counts = np.bincount(numbers, minlength=len(p)) / number
    floor = np.sqrt(p * (1 - p) / number).sum() / 2
    assert np.abs(counts - p).sum() / 2 < 4 * floor
    np.testing.assert_allclose(kept, route(x), atol=1e-12)


def test_a_chain_keeps_its_held_coefficients(neuron_layer, neuron_images):
    experts, v = neuron_layer("held"), neuron_images()
    c = experts.route(v).coefficients
    _, _, after = experts.gibbs(v, c, 3, seed=0)
    np.testing.assert_array_equal(after, c)


def test_moving_the_centre_changes_nothing_for_fixed_coefficients(neuron_layer, neuron_images):
    experts, v = neuron_layer("fixed", centering=True), neuron_images(n=9)
    before = np.asarray(experts.free_energy(v))
    random = np.random.default_rng(5)
    experts.move_offsets(0.3 * random.normal(size=(I, D)), 0.3 * random.normal(size=(J, E)))
    jump = np.asarray(experts.free_energy(v)) - before
    np.testing.assert_allclose(jump, jump[0], atol=1e-12)


def test_moving_the_centre_is_a_small_jump_for_held_coefficients(neuron_layer, neuron_images):
    experts, v = neuron_layer("held", centering=True), neuron_images(n=9)
    routed = experts.route(v).coefficients
    before = np.asarray(experts.free_energy(v, routed))
    mean = np.asarray(routed).mean(axis=0)
    step = 0.01 * np.random.default_rng(5).normal(size=(I, D))
    experts.move_offsets(step, np.zeros((J, E)), mean)
    jump = np.asarray(experts.free_energy(v, routed)) - before
    # Of the order of the step, and not zero: the biases that would undo it differ by image.
    assert 1e-6 < np.ptp(jump) < 0.05


@pytest.mark.parametrize("routing", READINGS)
def test_saved_and_loaded_in_safe_mode(neuron_images, routing, tmp_path):
    inputs = keras.Input((I, D))
    experts = NeuronPoE(J, E, routing=routing, learn_variance=True)
    model = keras.Model(inputs, experts(inputs))
    v = neuron_images("gaussian").astype("float32")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(v), model(v))
    assert again.layers[-1].get_config() == experts.get_config()


@pytest.mark.parametrize(
    "wrong",
    [
        {"visible": "ternary"},
        {"routing": "routed"},
        {"routing": "latent", "softmax_over": "inputs"},
    ],
)
def test_arguments_that_are_refused(wrong):
    name = "softmax_over" if "softmax_over" in wrong else next(iter(wrong))
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        NeuronPoE(J, E, **wrong)


def test_persistent_chains_need_fixed_coefficients(neuron_layer, neuron_images):
    with pytest.raises(ValueError, match="`chains` must be None"):
        neuron_layer("held").contrastive_divergence(neuron_images(), chains=neuron_images())


def no_bias(experts, data, held, every):
    bias = np.asarray(experts.hidden_bias).copy()
    experts.hidden_bias.assign(0 * bias)
    found = exact_gradient(experts, data, held, every)
    experts.hidden_bias.assign(bias)
    return found


def routed_anew(experts, data, held, every):
    return exact_gradient(experts, data, held, every, route="anew")


@pytest.mark.some(2)
@pytest.mark.parametrize("wrong", [no_bias, routed_anew])
def test_mutants_of_the_gradient(neuron_layer, neuron_images, wrong):
    with pytest.raises(AssertionError):
        check_gradient(neuron_layer("held"), neuron_images(n=3), wrong)


def test_mutants_of_the_chain(neuron_layer, neuron_images):
    experts = neuron_layer("held")
    v = bits(I * D).reshape(-1, I, D)
    c = np.asarray(experts.route(neuron_images()).coefficients)[0]
    with pytest.raises(AssertionError):
        check_detailed_balance(experts, c, transition(experts, experts.route(v).coefficients))
    other = neuron_layer("held", seed=3)
    other.kernel.assign(np.swapaxes(np.asarray(experts.kernel), 2, 3))
    with pytest.raises(AssertionError):
        check_detailed_balance(other, c, transition(experts, c))


@pytest.mark.parametrize("routing", ["held", "fixed", "latent"])
def test_half_precision(routing):
    layer, wide = (
        NeuronPoE(3, 2, routing=routing, dtype=dtype, kernel_initializer="zeros")
        for dtype in ("float16", "float32")
    )
    v = np.random.default_rng(0).uniform(size=(2, 6, 4))
    assert layer(v).dtype == "float16"
    np.testing.assert_allclose(layer(v), wide(v), atol=1e-3)
