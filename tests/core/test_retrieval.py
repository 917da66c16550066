"""The mean-field chain climbs; capsules do not tell an image from its negative."""

import numpy as np
import pytest
from theory.retrieval import conjugate, lyapunov, potential

from keras_capsule_poe.functions import (
    BlockMaps,
    EinsumMaps,
    Router,
    RoutingOptions,
    chain_step,
    free_energy,
    squash,
)

I, J, D, E, B = 6, 4, 3, 4, 30
FORMS = pytest.mark.parametrize("form", [EinsumMaps, BlockMaps])


def model(scale=1.0, seed=0, dtype="float64"):
    """Maps, inputs and coefficients of their own for every image."""
    random = np.random.default_rng(seed)
    kernel = scale * random.normal(size=(I, J, E, D))
    x = np.asarray(squash(random.normal(size=(B, I, D))))
    c = random.uniform(0.1, 1.5, size=(B, I, J))
    return kernel.astype(dtype), x.astype(dtype), c.astype(dtype)


def test_squash_is_the_gradient_of_the_potential():
    """Fenchel and Young: Phi(z) + Phi*(x) >= z.x, with equality at x = squash(z) alone."""
    random = np.random.default_rng(0)
    z = random.normal(size=(500, 4)) * np.logspace(-3, 2, 500)[:, None]
    x = np.asarray(squash(z))
    gap = np.asarray(potential(z)) + np.asarray(conjugate(x)) - np.sum(z * x, axis=-1)
    # Values of up to 500 in float64; next to length one |x| is known to 1e-16 and 1 - |x| is 1e-4.
    assert np.abs(gap).max() < 1e-11
    other = np.asarray(squash(random.normal(size=x.shape)))
    gap = np.asarray(potential(z)) + np.asarray(conjugate(other)) - np.sum(z * other, axis=-1)
    assert gap.min() > 0
    h, middle = 1e-6, slice(200, 300)
    for move in h * np.eye(4):
        # Rounding of values of order one, 1e-16/h, and h^2.
        slope = (np.asarray(potential(z[middle] + move)) - potential(z[middle] - move)) / (2 * h)
        np.testing.assert_allclose(slope, x[middle] @ move / h, atol=1e-8)


def climbed(kernel, x, c, chain_maps, form=EinsumMaps, steps=100, coefficients=None):
    """Steps of L along the chain, (steps, B)."""
    values = [np.asarray(lyapunov(form(kernel), x, c))]
    for _ in range(steps):
        x = chain_step(chain_maps, x, c if coefficients is None else coefficients(x))
        values.append(np.asarray(lyapunov(form(kernel), x, c)))
    return np.diff(values, axis=0)


@pytest.mark.some(5)
@FORMS
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_the_mean_field_chain_climbs(form, scale):
    kernel, x, c = model(scale)
    steps = climbed(kernel, x, c, form(kernel), form, steps=15)
    assert steps.min() > -1e-12 and steps[0].min() > 1e-6


class Exchanged(EinsumMaps):
    """Wrong: the way down takes experts for each other."""

    def down(self, c, y):
        return super().down(c, y[:, ::-1])


@pytest.mark.parametrize("wrong", ["down", "routed", "coefficients"])
def test_other_chains_fall(wrong):
    kernel, x, c = model()
    maps, coefficients = EinsumMaps(kernel), None
    if wrong == "down":
        maps = Exchanged(kernel)
    elif wrong == "routed":
        router = Router(maps, RoutingOptions(agreement_scale=5.0))
        c = np.asarray(router.route(x).coefficients)
        coefficients = lambda x: router.route(x).coefficients  # noqa: E731
    else:
        coefficients = lambda x: c**2  # noqa: E731
    assert climbed(kernel, x, c, maps, steps=20, coefficients=coefficients).min() < -1e-6


@FORMS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("agreement", ["cosine", "dot"])
def test_an_image_and_its_negative_are_equally_probable(form, dtype, agreement):
    """F and c are even in x, to the last bit: no threshold on F tells an image from -image."""
    kernel, x, fixed = model(dtype=dtype)
    options = RoutingOptions(
        routing_iterations=4, agreement_scale=2.0, agreement=agreement, softmax_over="outputs"
    )
    router = Router(form(kernel), options)
    one, other = (router.route(sign * x) for sign in (1, -1))
    assert np.array_equal(one.coefficients, other.coefficients)
    assert np.array_equal(one.z, -np.asarray(other.z))
    energies = [np.asarray(free_energy(routed.z)) for routed in (one, other)]
    assert np.array_equal(*energies) and energies[0].std() > 0.1
    # The area under the curve is one half: as many pairs are ordered one way as the other.
    difference = energies[0][:, None] - energies[1]
    assert np.sum(difference > 0) == np.sum(difference < 0)
    assert np.array_equal(
        *(free_energy(EinsumMaps(kernel).up(fixed, sign * x)) for sign in (1, -1))
    )
