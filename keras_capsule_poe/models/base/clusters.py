"""Clusters of training images, initial maps of experts from them, and Gaussian mixtures."""

import dataclasses
import warnings

import numpy as np

from keras_capsule_poe.data import epoch_order
from keras_capsule_poe.data.mapping import chunks

# Images for k-means: enough for twenty clusters, and a limit on memory.
CLUSTERED = 10_000
CLUSTERED_BYTES = 200e6
# A single k-means run may end in a poor optimum. Many runs on a few principal components find
# tighter clusters in less time than a few runs on all dimensions.
CLUSTERINGS = 20
PRINCIPAL_AXES = 64
# Images for each principal direction of a cluster, which a few images do not show.
PER_DIRECTION = 20
# Images compared with the means of clusters at once.
AT_ONCE = 2_000
# With fewer dimensions, BLAS threads mostly wait for each other.
_THREADED = 128


def initialize_maps(experts, initializer, x_of, images, seed, length=0.5):
    """Initialize the maps of a built layer from primary capsules `x_of(rows)` (N, I, D).

    They are principal directions (`"principal"`) or images of clusters (`"clusters"`), random
    images (`"random"`), each of the given length, or stay noise (`"noise"`).
    """
    if initializer == "noise":
        return
    size = experts.capsules, experts.dim
    if initializer == "principal" and images > experts.capsules:
        x = principal_directions(x_of, images, *size, seed)
    else:
        x = x_of(starting_images(x_of, images, *size, initializer, seed))
    experts.start_from_images(x, length)


def starting_images(x_of, images, experts, dim, start, seed):
    """Return the indices (J E,) of training images for the E maps of each of J experts."""
    if start == "random" or images <= experts:
        # Images repeat only after all are used: equal maps would stay equal for good.
        return np.resize(epoch_order(images, seed, epoch=0), experts * dim)
    chosen, _, distances = clustered(x_of, images, experts, seed)
    nearest = distances.argmin(axis=1)
    random = np.random.default_rng(seed)
    rows = []
    for expert, distance in enumerate(distances.T):
        inside = random.permutation(np.flatnonzero(nearest == expert))
        # Fill a small cluster with the nearest images of other clusters.
        others = np.argsort(np.where(nearest == expert, np.inf, distance))
        rows.append(np.resize(np.concatenate([inside, others])[:dim], dim))
    return chosen[np.concatenate(rows)]


def principal_directions(x_of, images, experts, dim, seed):
    """Return E principal directions (J E, I, D) of the images of each of J clusters.

    They are the leading right singular vectors of the cluster's primary capsules, not centred, so
    that the first one is close to its mean.
    """
    from sklearn.utils.extmath import randomized_svd

    random, found = np.random.default_rng(seed), []
    for rows in cluster_rows(x_of, images, experts, dim, seed):
        x = x_of(rows)
        shape = x.shape[1:]
        x = x.reshape(len(x), -1)
        # Fewer images than directions leave some of them random.
        directions = random.normal(size=(dim, x.shape[1]))
        kept = min(dim, *x.shape)
        directions[:kept] = randomized_svd(x, kept, n_iter=2, random_state=seed)[2]
        found.append((directions / np.linalg.norm(directions, axis=1)[:, None]).reshape(-1, *shape))
    return np.concatenate(found).astype("float32")


def cluster_rows(x_of, images, experts, dim, seed):
    """Return the image indices of each of J clusters, some for each of E directions."""
    wanted = PER_DIRECTION * dim
    chosen, x, distances = clustered(x_of, images, experts, seed)
    nearest = distances.argmin(axis=1)
    sizes = np.bincount(nearest, minlength=experts)
    # The cluster's own images, then the nearest images of other clusters.
    orders = [
        np.argsort(np.where(nearest == k, 0, 1 + distance))
        for k, distance in enumerate(distances.T)
    ]
    rows = [chosen[order[: max(2 * dim, size)]] for order, size in zip(orders, sizes)]
    more = np.sort(epoch_order(images, seed, epoch=0)[len(chosen) : experts * wanted])
    if len(more):
        means = [x[order[: max(1, size)]].mean(axis=0) for order, size in zip(orders, sizes)]
        joins = np.concatenate([_nearest(x_of(part), means) for part in chunks(more, AT_ONCE)])
        rows = [np.concatenate([own, more[joins == k]]) for k, own in enumerate(rows)]
    return [np.sort(own[:wanted]) for own in rows]


def _nearest(x, means):
    """Return for each of x (N, I, D) the index of the nearest of the means (J, I D)."""
    means = np.stack(means)
    # |x - m|^2 without |x|^2, which does not change the order.
    return (np.square(means).sum(axis=1) - 2 * x.reshape(len(x), -1) @ means.T).argmin(axis=1)


def clustered(x_of, images, experts, seed):
    """Return image indices (n,), primary capsules (n, I D) and cluster distances (n, J)."""
    from sklearn.cluster import KMeans
    from sklearn.utils.extmath import randomized_svd

    order = epoch_order(images, seed, epoch=0)
    bytes_each = 4 * x_of(order[:1]).size
    chosen = np.sort(order[: max(experts, min(CLUSTERED, int(CLUSTERED_BYTES / bytes_each)))])
    x = x_of(chosen).reshape(len(chosen), -1)
    kept = min(PRINCIPAL_AXES, *x.shape)
    left, sizes, _ = randomized_svd(x - x.mean(axis=0), kept, n_iter=2, random_state=seed)
    components = left * sizes
    clusters = KMeans(experts, n_init=CLUSTERINGS, random_state=seed).fit(components)
    return chosen, x, clusters.transform(components)


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
