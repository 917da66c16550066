"""EM routing as what it is named after: the EM of a mixture of Gaussians, and soft k-means.

Rejected: a mixture whose likelihood falls; a standard deviation for a variance.
"""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from theory.soft_k_means import soft_k_means_step

from keras_capsule_poe.functions import EMOptions
from keras_capsule_poe.models.matrix_capsules.routing import e_step, m_step

# Float64 sums of a hundred terms of order one, in another order.
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
PARENTS, SIZE = 3, 4


def mixture_problem(seed=0, n=200, clusters=3, size=2):
    random = np.random.default_rng(seed)
    means = 4 * random.normal(size=(clusters, size))
    points = means[random.integers(clusters, size=n)] + random.normal(size=(n, size))
    return points, softmax(random.normal(size=(n, clusters)), axis=-1)


# The options ask for a floor above zero; this one is far below all that is compared.
FLOOR = EMOptions(variance_floor=1e-12)


def test_with_mixing_weights_it_is_the_em_of_scikit_learn():
    points, r = mixture_problem()

    def step(r):
        clusters = m_step(r, np.ones(len(points)), points[:, None], 0.0, FLOOR)
        weights = np.asarray(r).mean(axis=0)
        logits = e_step(clusters, np.log(weights), points[:, None])
        return clusters, weights, softmax(logits, axis=-1)

    start, weights, r = step(r)
    for _ in range(6):
        clusters, _, r = step(r)
    theirs = GaussianMixture(
        3, covariance_type="diag", reg_covar=0, tol=0, max_iter=6, weights_init=weights,
        means_init=np.asarray(start.mean), precisions_init=1 / np.asarray(start.variance),
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning):
        theirs.fit(points)
    np.testing.assert_allclose(clusters.mean, theirs.means_, rtol=1e-7)
    np.testing.assert_allclose(clusters.variance, theirs.covariances_, rtol=1e-7)


def test_with_mixing_weights_the_likelihood_never_falls():
    points, r = mixture_problem(seed=1)
    # Children that are half there count half.
    found, a = [], np.random.default_rng(2).uniform(0.1, 1, size=len(points))
    for _ in range(30):
        clusters = m_step(r, a, points[:, None], 0.0, FLOOR)
        weights = np.average(r, axis=0, weights=a)
        logs = np.asarray(e_step(clusters, np.log(weights), points[:, None]))
        found.append(a @ logsumexp(logs, axis=-1))
        r = softmax(logs, axis=-1)
    # Float64 sums of 200 terms of order one.
    assert np.all(np.diff(found) > -1e-9) and found[-1] - found[0] > 1


def test_with_equal_activations_and_variances_it_is_soft_k_means():
    random = np.random.default_rng(2)
    votes, centres = random.normal(size=(40, PARENTS, SIZE)), random.normal(size=(PARENTS, SIZE))
    variance = np.full((PARENTS, SIZE), 0.25)
    clusters = m_step(np.ones((40, PARENTS)), np.ones(40), votes, 0.0)
    clusters = clusters._replace(mean=centres, variance=variance)
    r = softmax(e_step(clusters, np.zeros(PARENTS), votes), axis=-1)
    theirs = soft_k_means_step(votes, centres, sharpness=1 / (2 * 0.25))
    np.testing.assert_allclose(r, theirs.coefficients, **CLOSE)
    np.testing.assert_allclose(m_step(r, np.ones(40), votes, 0.0).mean, theirs.z, **CLOSE)
