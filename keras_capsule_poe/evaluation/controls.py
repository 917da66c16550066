"""Gaussian baselines of an autoencoder's features."""

import numpy as np
from sklearn.decomposition import PCA

from keras_capsule_poe.evaluation.feature_model import ROWS, FeatureModel, of_columns
from keras_capsule_poe.generation.mixtures import fit_mixture


class FeatureControl(FeatureModel):
    """Diagonal Gaussian, full Gaussian or mixture of Gaussians, fitted to features (N, K)."""

    def __init__(self, kind, rank=200, components=50, seed=0):
        if kind not in KINDS:
            raise ValueError(f"`kind` must be one of {sorted(KINDS)}. Received: {kind!r}")
        self.kind, self.rank, self.components, self.seed = kind, rank, components, seed

    def _fit(self, features):
        self._drawn = KINDS[self.kind](np.asarray(features, "float32"), self)

    def _blocks(self, n, seed):
        random = np.random.default_rng(seed)
        return (self._drawn(random, min(ROWS, n - start)) for start in range(0, n, ROWS))


def _diagonal_gaussian(features, control):
    mean = _mean(features)
    deviation = of_columns(lambda some: some.std(axis=0, ddof=1, dtype="float64"), features)
    deviation = deviation.astype("float32")

    def draw(random, n):
        return mean + deviation * random.standard_normal((n, len(mean)), dtype="float32")

    return draw


def _full_gaussian(features, control):
    mean = _mean(features)
    # For standard normal e, sum_n e_n (x_n - mean)/sqrt(N - 1) has the covariance of the features.
    # This decomposes no large matrix, and works with fewer rows than dimensions.
    root = features - mean
    root /= np.float32(np.sqrt(len(features) - 1))

    def draw(random, n):
        return mean + random.standard_normal((n, len(root)), dtype="float32") @ root

    return draw


def _gaussian_mixture(features, control):
    rank = min(control.rank, features.shape[1], len(features) - 1)
    axes = PCA(rank, svd_solver="randomized", random_state=control.seed).fit(features)
    # In these units `reg_covar` is relative to the variance of the features.
    unit = np.float32(np.sqrt(axes.explained_variance_.mean()))
    components = min(control.components, len(features))
    # A baseline need not be at its optimum, so 30 EM iterations are enough.
    mixture = fit_mixture(
        axes.transform(features) / unit, components, control.seed, reg_covar=1e-3, max_iter=30
    )

    def draw(random, n):
        return axes.inverse_transform(unit * mixture.sample(random, n))

    return draw


def _mean(features):
    return features.mean(axis=0, dtype="float64").astype("float32")


KINDS = {
    "diagonal_gaussian": _diagonal_gaussian,
    "full_gaussian": _full_gaussian,
    "gaussian_mixture": _gaussian_mixture,
}
