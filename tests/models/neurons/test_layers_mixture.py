"""The layer of which one capsule makes the whole image, against the mixture it stands for.

`functions.BoltzmannMixture` is checked against NumPy elsewhere; here, that the layer's maps W_ij
of parts reach it in the right order, times s. Wrong versions that these tests reject: the scale
left out of the gradient, parts and capsules exchanged, neurons of other capsules on.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import NeuronMixture
from keras_capsule_poe.core.enumeration import BoltzmannMixture

I, D, J, E, S = 3, 2, 4, 3, 2.0


def layer(**options):
    experts = NeuronMixture(J, E, coefficient_sum=S, dtype="float64", **options)
    experts.build((None, I, D))
    random = np.random.default_rng(0)
    for weight in (*experts.trainable_weights, experts.routing_bias):
        weight.assign(0.7 * random.normal(size=weight.shape))
    return experts


def images(n=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, I, D))


def mixture(experts):
    """Of the layer's maps, one number at a time."""
    kernel, w = np.asarray(experts.kernel), np.zeros((J, E, I * D))
    for i, j, e, d in np.ndindex(I, J, E, D):
        w[j, e, D * i + d] = S * kernel[i, j, e, d]
    rest = experts.hidden_bias, np.reshape(experts.visible_bias, -1), experts.routing_bias
    return BoltzmannMixture(w, *map(np.asarray, rest))


def test_it_is_the_mixture():
    experts, v = layer(), images()
    found, expected = experts.posterior(v), mixture(experts).infer(v.reshape(len(v), -1))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(experts(v), expected.neurons, atol=1e-12)
    np.testing.assert_allclose(experts.free_energy(v), -expected.log_density, atol=1e-12)
    c, z = experts.route(v)
    np.testing.assert_allclose(c, np.repeat(S * expected.parent[:, None], I, axis=1), atol=1e-12)
    # What a routed layer's z is: sum_i c_ij W_ij v_i.
    votes = np.einsum("bij,ijed,bid->bje", c, experts.kernel, v)
    np.testing.assert_allclose(z, votes, atol=1e-12)


def test_the_gradient_is_that_of_the_density():
    experts, v, step = layer(), images(), 1e-5
    gradient, _ = experts.likelihood_gradient(v)
    for name in ("kernel", "hidden_bias", "visible_bias"):
        weight, found = getattr(experts, name), np.asarray(getattr(gradient, name))
        values = np.asarray(weight)
        for entry in np.random.default_rng(3).choice(values.size, 6, replace=False):
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved.flat[entry] += sign * step
                weight.assign(moved)
                ends.append(-float(np.mean(experts.free_energy(v))))
            weight.assign(values)
            # Central differences: the step squared, and rounding of 1e-15 over the step.
            assert abs((ends[0] - ends[1]) / (2 * step) - found.flat[entry]) < 3e-9


def test_a_capsule_alone_is_the_one_of_the_mixture():
    experts = layer()
    table = np.reshape(mixture(experts).table(), (J, -1))
    alone = np.asarray(experts.state_log_weights())
    np.testing.assert_allclose(alone, table, atol=1e-12)
    neurons = np.random.default_rng(0).integers(2, size=(J, E)).astype("float64")
    expected = np.asarray(mixture(experts).decode(np.eye(J)[:, :, None] * neurons[:, None]))
    decoded = experts.decode(
        np.eye(J)[:, :, None] * neurons[:, None], experts.coefficients_of_winner(np.arange(J))
    )
    np.testing.assert_allclose(np.reshape(decoded, (J, -1)), expected, atol=1e-12)


def test_chains_and_draws_keep_one_parent():
    experts = layer()
    v, h, c = experts.gibbs(images(200), None, steps=3, seed=4)
    winner = np.argmax(np.asarray(c)[:, 0], axis=-1)
    one_hot = np.repeat(S * np.eye(J)[winner][:, None], I, axis=1)
    np.testing.assert_array_equal(c, one_hot)
    assert np.all(np.asarray(h)[np.eye(J)[winner] == 0] == 0) and np.shape(v) == (200, I, D)
    v, h, parent = experts.draw(200, seed=4)
    assert np.all(np.asarray(h)[np.eye(J)[np.asarray(parent)] == 0] == 0)


def test_it_starts_as_its_groups():
    """Of data with as many axes as neurons but one, v has the group's mean and covariance."""
    experts, random = (
        NeuronMixture(2, 3, coefficient_sum=S, dtype="float64"),
        np.random.default_rng(5),
    )
    experts.build((None, I, D))
    groups = [
        2 * random.normal(size=I * D)
        + 3 * random.normal(size=(40, 2)) @ random.normal(size=(2, I * D))
        for _ in range(2)
    ]
    experts.start_from_groups([group.reshape(-1, I, D) for group in groups])
    mixture = BoltzmannMixture(
        S * np.asarray(experts.kernel).transpose(1, 2, 0, 3).reshape(2, 3, -1), experts.hidden_bias
    )
    for capsule, group in enumerate(groups):
        table = np.asarray(mixture.table())[capsule].ravel()
        p = np.exp(table - table.max())
        h = np.array([[n >> e & 1 for e in range(3)] for n in range(8)], "float64")
        # Its first neuron is on, by the odds of its prior bias, however far the others move v.
        np.testing.assert_allclose(p @ h[:, 0] / p.sum(), 1 / (1 + np.exp(-5.0)), rtol=1e-10)
        p = p * h[:, 0]
        means = h @ np.asarray(mixture.kernel)[capsule]
        mean = p @ means / p.sum()
        np.testing.assert_allclose(mean, group.mean(axis=0), atol=1e-10)
        covariance = np.einsum("s,sn,sm->nm", p, means - mean, means - mean) / p.sum()
        np.testing.assert_allclose(covariance, np.cov(group.T, bias=True), atol=1e-10)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"visible": "bernoulli"}, "`visible` must be 'gaussian'"),
        ({"centering": True}, "`centering` must be False"),
        ({"learn_variance": True}, "`learn_variance` must be False"),
        ({"routing": "per_image"}, "`routing` must be"),
        ({"dim": 21}, "`dim` must be at most 20"),
    ],
)
def test_what_it_cannot_be(wrong, said):
    with pytest.raises(ValueError, match=said):
        NeuronMixture(**{"capsules": 2, "dim": 3, **wrong})


def test_saved_and_loaded(tmp_path):
    model = keras.Sequential([keras.Input((I, D)), layer()])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(images()), again(images()))
