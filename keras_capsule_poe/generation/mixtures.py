"""One mixture of Gaussians, fitted to vectors and drawn from."""

import dataclasses
import warnings

import numpy as np

# From so many dimensions on products are large enough for threads to pay.
_THREADED = 128


@dataclasses.dataclass(frozen=True)
class Mixture:
    """A mixture of K Gaussians in E dimensions: m_k + F_k n, with n standard Gaussian.

    Attributes:
        weights: Array (K,), which sum to one.
        means: Array (K, E), m.
        factors: Array (K, E, E), F, the lower triangular roots of the covariances.
    """

    weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray

    def sample(self, random, n):
        """Vectors (n, E), float32, drawn with a NumPy generator.

        Examples:

        >>> still = Mixture(np.ones(1), np.array([[2.0]]), np.zeros((1, 1, 1)))
        >>> still.sample(np.random.default_rng(0), 2).tolist()
        [[2.0], [2.0]]
        """
        which = random.choice(len(self.weights), n, p=self.weights)
        x = random.standard_normal((n, self.means.shape[1]), dtype="float32")
        for k in np.unique(which):
            x[which == k] = self.means[k] + x[which == k] @ self.factors[k].T
        return x


def fit_mixture(x, components, seed=0, **options):
    """The `Mixture` of rows (N, E) by expectation maximisation.

    Args:
        x: Array (N, E).
        components: int, K.
        seed: int, of the start.
        **options: Of `sklearn.mixture.GaussianMixture`.

    Returns:
        `Mixture`.

    Examples:

    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> fit_mixture(x, components=3).factors.shape
    (3, 2, 2)
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    mixture = GaussianMixture(components, random_state=seed, **options)
    # Threads of small products wait for each other most of the time.
    threads = 1 if x.shape[1] < _THREADED else None
    with warnings.catch_warnings(), threadpool_limits(threads, "blas"):
        # How many steps is the caller's choice: a mixture need not be at its optimum.
        warnings.filterwarnings("ignore", "Best performing initialization", ConvergenceWarning)
        mixture.fit(x)
    return Mixture(mixture.weights_, mixture.means_, np.linalg.cholesky(mixture.covariances_))
