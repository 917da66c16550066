"""Variational routing against scikit-learn's mixture, and its updates as maxima of a lower bound.

The bound is written here from Bishop's terms, in NumPy (float64), and itself held against that of
scikit-learn. Rejected: logarithms of means in the place of digammas; degrees of freedom without
the numbers' own; a prior mean that is left out of psi; assignments without the shares; a
competition within a window only, or over the types of a place; masses without activations.
"""

import warnings

import numpy as np
import pytest
from scipy.special import digamma, expit, gammaln, multigammaln, softmax
from scipy.stats import wishart
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from keras_capsule_poe.functions import ReceptiveFields, VariationalOptions, variational_routing
from keras_capsule_poe.models.matrix_capsules.routing import (
    expected_log_densities,
    expected_log_determinants,
    expected_log_shares,
    parent_posteriors,
    variational_steps,
)

# Float64 sums of a hundred terms of order one, in another order.
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
TYPES, PARENTS, SIZE = 2, 3, 4
PRIORS = VariationalOptions(
    routing_iterations=6, concentration=0.7, mean_precision=0.3, degrees_of_freedom=4.5, scale=0.2
)


def problem(fields, seed=0):
    random = np.random.default_rng(seed)
    places, offsets = fields.children.shape
    a = random.uniform(0.1, 1, size=(1, np.prod(fields.grid), TYPES))
    votes = random.normal(size=(1, places, offsets, TYPES, PARENTS, SIZE))
    return votes, np.asarray(fields.gather(a)), random.normal(size=(2, PARENTS))


def expectations(parents, votes):
    """E ln pi (..., J), E ln|Lambda| (..., J) and E ln N (..., I, J), from SciPy's functions."""
    alpha, kappa, nu, mean, psi = map(np.asarray, parents)
    size = mean.shape[-1]
    shares = digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))
    degrees = digamma((nu[..., None] - np.arange(size)) / 2).sum(axis=-1)
    determinants = degrees + size * np.log(2) - np.log(psi).sum(axis=-1)
    gaps = ((votes - mean[..., None, :, :]) ** 2 / psi[..., None, :, :]).sum(axis=-1)
    quadratic = size / kappa[..., None, :] + nu[..., None, :] * gaps
    densities = (determinants[..., None, :] - size * np.log(2 * np.pi) - quadratic) / 2
    return shares, determinants, densities


def bound(parents, r, votes, a, places_of_child, options):
    """The lower bound on the evidence; r (..., C, J), of children (..., C) that count a times."""
    alpha, kappa, nu, mean, psi = map(np.asarray, parents)
    types, size = alpha.shape[-1], mean.shape[-1]
    kappa_0, (nu_0, psi_0) = options.mean_precision, options.wishart(size)
    shares, determinants, densities = expectations(parents, votes)
    each = shares[..., None, :] - np.log(places_of_child)[..., None] + densities - np.log(r)
    evidence = (a[..., None] * r * each).sum()
    before = np.full(types, options.concentration)
    dirichlet = (
        gammaln(alpha.sum(axis=-1)) - gammaln(alpha).sum(axis=-1)
        - gammaln(before.sum()) + gammaln(before).sum()
        + ((alpha - before) * shares).sum(axis=-1)
    )  # fmt: skip
    gaussian = (
        size * (kappa_0 / kappa - 1 + np.log(kappa / kappa_0))
        + kappa_0 * nu * (mean**2 / psi).sum(axis=-1)
    ) / 2

    def log_normaliser(nu, log_determinant):
        """ln B of Bishop's Equation B.79, by the determinant of the inverse scale."""
        return nu / 2 * log_determinant - nu * size / 2 * np.log(2) - multigammaln(nu / 2, size)

    wisharts = (
        np.vectorize(log_normaliser)(nu, np.log(psi).sum(axis=-1))
        - log_normaliser(nu_0, size * np.log(psi_0))
        + (nu - nu_0) / 2 * determinants
        + nu / 2 * ((psi_0 / psi).sum(axis=-1) - size)
    )
    return evidence - dirichlet.sum() - gaussian.sum() - wisharts.sum()


def flat(fields, x):
    """The children of a window in one axis."""
    return np.reshape(x, (1, len(fields.children), -1, *np.shape(x)[4:]))


@pytest.fixture(scope="module")
def mixture():
    random = np.random.default_rng(0)
    means = 3 * random.normal(size=(PARENTS, SIZE))
    points = means[random.integers(PARENTS, size=150)] + random.normal(size=(150, SIZE))
    # What scikit-learn starts from.
    state = np.random.RandomState(0)
    labels = KMeans(n_clusters=PARENTS, n_init=1, random_state=state).fit(points).labels_
    return points, np.eye(PARENTS)[labels]


def theirs(points, iterations):
    fitted = BayesianGaussianMixture(
        n_components=PARENTS, covariance_type="diag", reg_covar=0, tol=0,
        max_iter=iterations, random_state=0,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=PRIORS.concentration,
        mean_precision_prior=PRIORS.mean_precision, mean_prior=np.zeros(SIZE),
        degrees_of_freedom_prior=PRIORS.degrees_of_freedom,
        covariance_prior=np.full(SIZE, PRIORS.scale),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fitted.fit(points)


def test_step_by_step_it_is_the_mixture_of_scikit_learn(mixture):
    points, r = mixture
    ones, votes, bounds = np.ones(len(points)), points[:, None], []
    parents = parent_posteriors(r, ones, votes, PRIORS)
    for step in range(1, 6):
        r = softmax(expected_log_densities(parents, votes), axis=-1)
        parents = parent_posteriors(r, ones, votes, PRIORS)
        fitted = theirs(points, step)
        np.testing.assert_allclose(parents.alpha, fitted.weight_concentration_, rtol=1e-7)
        np.testing.assert_allclose(parents.kappa, fitted.mean_precision_, rtol=1e-7)
        np.testing.assert_allclose(parents.nu, fitted.degrees_of_freedom_, rtol=1e-7)
        np.testing.assert_allclose(parents.mean, fitted.means_, rtol=1e-7)
        # Theirs is divided by the degrees of freedom.
        covariances = np.asarray(parents.psi) / np.asarray(parents.nu)[:, None]
        np.testing.assert_allclose(covariances, fitted.covariances_, rtol=1e-7)
        after = softmax(expected_log_densities(parents, votes), axis=-1)
        np.testing.assert_allclose(after, fitted.predict_proba(points), rtol=1e-6, atol=1e-9)
        ours = bound(parents, np.maximum(r, 1e-300), votes, ones, ones, PRIORS)
        bounds.append((ours, fitted.lower_bound_))
    # They leave constants out.
    ours, others = np.diff(bounds, axis=0).T
    np.testing.assert_allclose(ours, others, rtol=1e-6, atol=1e-7)
    assert len(set(np.round(others, 6))) > 2


@pytest.mark.some(5)
@pytest.mark.parametrize("grid", [(4, 5, 3, 1), (5, 4, 2, 2), (3, 2, None, 1)])
@pytest.mark.parametrize("options", [PRIORS, VariationalOptions(routing_iterations=6)])
def test_each_update_is_the_maximum_of_the_bound(grid, options):
    fields = ReceptiveFields(*grid)
    votes, a, betas = problem(fields)
    steps = variational_steps(votes, a, *betas, fields, options)
    votes, a = flat(fields, votes), flat(fields, a[..., None])[..., 0]
    places = flat(
        fields,
        np.broadcast_to(
            fields.parents[fields.children][..., None], (*fields.children.shape, TYPES)
        )[None, ..., None],
    )[..., 0]
    random, found, parents = np.random.default_rng(1), [], None
    for step in steps:
        r = flat(fields, step.routing.assignment)
        if parents is not None:
            # By the parents before: any other sharing among the parents of a child has less.
            found.append(bound(parents, r, votes, a, places, options))
            for _ in range(3):
                noise = 0.1 * random.normal(size=step.log_assignment.shape)
                other = fields.compete(step.log_assignment + noise)
                assert bound(parents, flat(fields, other), votes, a, places, options) < found[-1]
        parents = parent_posteriors(r, a, votes, options)
        np.testing.assert_allclose(parents.mean, step.routing.pose, **CLOSE)
        found.append(bound(parents, r, votes, a, places, options))
        for name in (*parents._fields, None):
            moved = {
                field: getattr(parents, field) * (1 + 1e-3 * random.normal(size=x.shape))
                for field, x in zip(parents._fields, parents)
                if field == name or name is None
            }
            other = parents._replace(**moved)
            assert bound(other, r, votes, a, places, options) < found[-1], name
    # Float64 sums of a few hundred terms of order one.
    assert np.all(np.diff(found) > -1e-9) and found[-1] - found[0] > 0.1


def test_activations_are_of_the_entropy_that_is_expected():
    fields = ReceptiveFields(3, 3, 2)
    votes, a, (beta_u, beta_a) = problem(fields)
    found = variational_routing(votes, a, beta_u, beta_a, fields, PRIORS)
    r = flat(fields, found.assignment)
    parents = parent_posteriors(r, flat(fields, a[..., None])[..., 0], flat(fields, votes), PRIORS)
    shares, determinants, _ = expectations(parents, flat(fields, votes))
    np.testing.assert_allclose(expected_log_shares(parents), shares, **CLOSE)
    np.testing.assert_allclose(expected_log_determinants(parents), determinants, **CLOSE)
    entropy = (SIZE * np.log(2 * np.pi * np.e) - determinants) / 2
    expected = expit(beta_a - beta_u - np.exp(shares) * entropy)
    np.testing.assert_allclose(found.activation, expected, **CLOSE)
    # Of one parent by draws: their log determinants have a deviation of about one.
    nu, psi = (float(np.asarray(parents.nu)[0, 0, 0]), np.asarray(parents.psi)[0, 0, 0])
    draws = wishart(nu, np.diag(1 / psi)).rvs(4000, random_state=0)
    logs = np.linalg.slogdet(draws)[1]
    assert abs(logs.mean() - determinants[0, 0, 0]) < 4 * logs.std() / np.sqrt(len(logs))


def test_its_steps_are_what_fewer_iterations_give():
    fields = ReceptiveFields(4, 4, 3)
    votes, a, betas = problem(fields)
    steps = variational_steps(votes, a, *betas, fields, PRIORS)
    assert len(steps) == PRIORS.routing_iterations
    for iterations in (1, 3):
        fewer = VariationalOptions(iterations, *list(vars(PRIORS).values())[1:])
        found = variational_routing(votes, a, *betas, fields, fewer)
        for ours, others in zip(steps[iterations - 1].routing, found, strict=True):
            np.testing.assert_array_equal(ours, others)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"routing_iterations": 0},
            "`routing_iterations` must be a positive integer. Received: routing_iterations=0",
        ),
        ({"concentration": 0}, "`concentration` must be a number above 0"),
        ({"mean_precision": -1}, "`mean_precision` must be a number above 0"),
        ({"scale": 0}, "`scale` must be a number above 0. Received: scale=0"),
        ({"degrees_of_freedom": 3}, "`degrees_of_freedom` must be a number above 3"),
    ],
)
def test_options_without_a_meaning_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        VariationalOptions(**options).wishart(SIZE)
