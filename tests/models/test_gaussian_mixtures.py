"""The mixture of Gaussians: what is drawn has the moments of what it says."""

import numpy as np
import pytest
import sklearn.mixture
from threadpoolctl import threadpool_info

from keras_capsule_poe.models.base.clusters import Mixture, fit_mixture

N = 40_000


def test_draws_have_the_mixtures_moments():
    weights, means = np.array([0.3, 0.7]), np.array([[3.0, 0.0], [-1.0, 2.0]])
    factors = np.array([[[1.0, 0.0], [0.5, 0.2]], [[0.3, 0.0], [-0.4, 1.0]]])
    x = Mixture(weights, means, factors).sample(np.random.default_rng(0), N)
    mean = weights @ means
    within = np.einsum("k,kij,klj->il", weights, factors, factors)
    covariance = within + np.einsum("k,ki,kj->ij", weights, means - mean, means - mean)
    # Six standard errors of each mean; of an entry of the covariance, bounded by fourth moments.
    np.testing.assert_allclose(
        x.mean(axis=0), mean, atol=6 * np.sqrt(np.diag(covariance) / N).max()
    )
    np.testing.assert_allclose(np.cov(x.T), covariance, atol=6 * 3 * covariance.max() / np.sqrt(N))


def test_a_fit_finds_blobs_and_their_roots():
    random = np.random.default_rng(1)
    x = np.concatenate([random.normal(size=(500, 3)) + 9, 0.1 * random.normal(size=(1500, 3))])
    found = fit_mixture(x, 2, seed=0)
    order = np.argsort(found.weights)
    assert found.weights[order] == pytest.approx([0.25, 0.75], abs=1e-6)
    for k, part in zip(order, (x[:500], x[500:])):
        np.testing.assert_allclose(found.means[k], part.mean(axis=0), atol=1e-6)
        covariance = found.factors[k] @ found.factors[k].T
        # scikit-learn divides by N and adds 1e-6 to the variances.
        np.testing.assert_allclose(covariance, np.cov(part.T, ddof=0), atol=2e-6)


@pytest.mark.parametrize("dimensions, alone", [(2, True), (200, False)])
def test_a_fit_has_one_thread_where_products_are_small(dimensions, alone, monkeypatch):
    """With two, sixteen dimensions took four to six times as long, two hundred three quarters."""
    fit, seen = sklearn.mixture.GaussianMixture.fit, []

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    def watched(mixture, x):
        seen.extend(threads())
        return fit(mixture, x)

    monkeypatch.setattr(sklearn.mixture.GaussianMixture, "fit", watched)
    before = threads()
    fit_mixture(np.random.default_rng(0).normal(size=(50, dimensions)), 2)
    assert seen == ([1] * len(before) if alone else before)
    assert threads() == before
