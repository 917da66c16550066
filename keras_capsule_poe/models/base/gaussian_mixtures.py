"""Gaussian mixtures, fitted to vectors and sampled."""

import dataclasses
import warnings

import numpy as np

# With fewer dimensions, BLAS threads mostly wait for each other.
_THREADED = 128


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Gaussian mixture m_k + F_k n: weights (K,), means (K, E), triangular factors (K, E, E)."""

    weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray

    def sample(self, random, n):
        """Return float32 samples (n, E), drawn with a NumPy generator."""
        which = random.choice(len(self.weights), n, p=self.weights)
        x = random.standard_normal((n, self.means.shape[1]), dtype="float32")
        for k in np.unique(which):
            x[which == k] = self.means[k] + x[which == k] @ self.factors[k].T
        return x


def fit_mixture(x, components, seed=0, **options):
    """Fit a `Mixture` to rows (N, E) by EM, with options of sklearn's `GaussianMixture`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    mixture = GaussianMixture(components, random_state=seed, **options)
    threads = 1 if x.shape[1] < _THREADED else None
    with warnings.catch_warnings(), threadpool_limits(threads, "blas"):
        # The caller chooses the number of EM iterations, so the fit need not converge.
        warnings.filterwarnings("ignore", "Best performing initialization", ConvergenceWarning)
        mixture.fit(x)
    return Mixture(mixture.weights_, mixture.means_, np.linalg.cholesky(mixture.covariances_))
