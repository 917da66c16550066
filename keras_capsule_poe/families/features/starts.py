"""Which images the maps of the experts start from."""

import numpy as np

from keras_capsule_poe.data import epoch_order

# Enough for k-means to find twenty groups, and a limit on the memory that it takes.
CLUSTERED = 10_000
CLUSTERED_BYTES = 200e6
STARTS = ("clusters", "random", "noise")
# One k-means now and then ends far from the closest. Many of a few principal components end closer,
# and sooner, than a few of all numbers: what is left out hardly tells groups apart.
CLUSTERINGS = 20
PRINCIPAL_AXES = 64


class MapStart:
    """How the maps of the experts start.

    Args:
        start: `"clusters"` or `"random"`: from images of clusters, or of any, see
            `starting_images`; `"noise"`: as their initialiser leaves them.
        image_length: float, the length of the images as maps.

    Raises:
        ValueError: If `start` is unknown or `image_length` is not positive.
    """

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
        """Sets the maps of a layer of experts.

        Args:
            experts: `RoutingLayer`, built.
            x_of: Function of indices to what the layer takes (N, I, D).
            images: int, how many there are.
            seed: int.
        """
        if self.start == "noise":
            return
        rows = starting_images(x_of, images, experts.capsules, experts.dim, self.start, seed)
        experts.start_from_images(x_of(rows), self.image_length)


def starting_images(x_of, images, experts, dim, start, seed):
    """Indices of J E training images, those of one expert together.

    `"clusters"`: k-means of principal components of primary capsules makes one group for each
    expert, and its images come from there, so that experts differ from the first step.
    `"random"`: any images. No image comes twice before all have: equal maps would stay equal for
    good.

    Args:
        x_of: Function of indices to primary capsules (N, I, D).
        images: int, how many there are.
        experts: int, J.
        dim: int, E.
        start: `"clusters"` or `"random"`.
        seed: int.

    Returns:
        Integer array (J E,).
    """
    if start == "random" or images <= experts:
        return np.resize(epoch_order(images, seed, epoch=0), experts * dim)
    chosen, _, distances = clustered(x_of, images, experts, seed)
    nearest = distances.argmin(axis=1)
    random = np.random.default_rng(seed)
    rows = []
    for expert, distance in enumerate(distances.T):
        inside = random.permutation(np.flatnonzero(nearest == expert))
        # A small cluster takes in the nearest of the others.
        others = np.argsort(np.where(nearest == expert, np.inf, distance))
        rows.append(np.resize(np.concatenate([inside, others])[:dim], dim))
    return chosen[np.concatenate(rows)]


def clustered(x_of, images, experts, seed):
    """Training images, as many as there is memory for, and their distances to clusters of them.

    The clusters are those of the closest of `CLUSTERINGS` k-means of the images' strongest
    `PRINCIPAL_AXES` principal components. An image belongs to the nearest.

    Args:
        x_of, images, seed: See `starting_images`.
        experts: int, J, clusters, at most as many as images.

    Returns:
        Indices (n,) of the images, their primary capsules (n, I D), and the distances (n, J) of
        their principal components to the clusters' means.
    """
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
