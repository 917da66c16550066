"""Which images the maps of the experts start from."""

import numpy as np

from keras_capsule_poe.data import epoch_order

# Enough for k-means to find twenty groups.
CLUSTERED = 10_000


def starting_images(x_of, images, experts, dim, start, seed):
    """Indices of J E training images, those of one expert together.

    `"clusters"`: k-means of primary capsules makes one group for each expert, and its images
    come from there, so that experts differ from the first step. `"random"`: any images.

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
    if start == "random":
        return np.resize(order, experts * dim)
    from sklearn.cluster import KMeans

    chosen = np.sort(order[:CLUSTERED])
    x = x_of(chosen)
    group = KMeans(experts, n_init=1, random_state=seed).fit_predict(x.reshape(len(x), -1))
    random = np.random.default_rng(seed)
    return np.concatenate(
        [np.resize(random.permutation(chosen[group == expert]), dim) for expert in range(experts)]
    )
