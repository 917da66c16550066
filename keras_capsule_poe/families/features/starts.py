"""Initialization of the experts' maps from training images."""

import numpy as np

from keras_capsule_poe.data import epoch_order

# Images for k-means: enough for twenty clusters, and a limit on memory.
CLUSTERED = 10_000
CLUSTERED_BYTES = 200e6
STARTS = ("clusters", "random", "noise")
# A single k-means run may end in a poor optimum. Many runs on a few principal components find
# tighter clusters in less time than a few runs on all dimensions.
CLUSTERINGS = 20
PRINCIPAL_AXES = 64


class MapStart:
    """Initialization of the experts' maps from clusters, from random images or from noise."""

    def __init__(self, start="clusters", image_length=0.5):
        if start not in STARTS:
            listed = " or ".join(repr(known) for known in STARTS)
            raise ValueError(f"`start` must be {listed}. Received: start={start!r}")
        if not image_length > 0:
            raise ValueError(
                f"`image_length` must be above zero. Received: image_length={image_length!r}"
            )
        self.start, self.image_length = start, image_length

    def apply(self, experts, x_of, images, seed):
        """Initialize the maps of a built layer from primary capsules `x_of(rows)` (N, I, D)."""
        if self.start == "noise":
            return
        rows = starting_images(x_of, images, experts.capsules, experts.dim, self.start, seed)
        experts.start_from_images(x_of(rows), self.image_length)


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
