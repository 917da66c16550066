"""Which images the maps of the experts start from."""

import numpy as np

from keras_capsule_poe.data import epoch_order

# Enough for k-means to find twenty groups, and a limit on the memory that it takes.
CLUSTERED = 10_000
CLUSTERED_BYTES = 200e6


def starting_images(x_of, images, experts, dim, start, seed):
    """Indices of J E training images, those of one expert together.

    `"clusters"`: k-means of primary capsules makes one group for each expert, and its images
    come from there, so that experts differ from the first step. `"random"`: any images. No
    image comes twice before all have: equal maps would stay equal for good.

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
    order = epoch_order(images, seed, epoch=0)
    if start == "random" or images <= experts:
        return np.resize(order, experts * dim)
    from sklearn.cluster import KMeans

    bytes_each = 4 * x_of(order[:1]).size
    chosen = np.sort(order[: max(experts, min(CLUSTERED, int(CLUSTERED_BYTES / bytes_each)))])
    x = x_of(chosen).reshape(len(chosen), -1)
    clusters = KMeans(experts, n_init=1, random_state=seed).fit(x)
    random = np.random.default_rng(seed)
    rows = []
    for expert, distance in enumerate(clusters.transform(x).T):
        inside = random.permutation(np.flatnonzero(clusters.labels_ == expert))
        # A small cluster takes in the nearest of the others.
        others = np.argsort(np.where(clusters.labels_ == expert, np.inf, distance))
        rows.append(np.resize(np.concatenate([inside, others])[:dim], dim))
    return chosen[np.concatenate(rows)]
