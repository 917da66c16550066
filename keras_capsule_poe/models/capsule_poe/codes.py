"""Statistics of the codes of all training images: whitening, and Gaussian mixtures for samples."""

import warnings

import numpy as np

from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.core.numerics import direction
from keras_capsule_poe.data.mapping import chunks, spread
from keras_capsule_poe.models.base.features import load_arrays, save_arrays
from keras_capsule_poe.models.capsule_poe.layers import GaussianMixtures, quadratic

# Images per expert: enough for the axes of sixteen dimensions.
AXES_IMAGES = 1_000
# Images per capsule: enough for Gaussians of some hundred dimensions, and a limit on memory.
DESCRIBED = 20_000
# Ridge of the means of shared codes, in images: small beside those that an expert wins.
RIDGE = 3.0
# Rank of the covariances of codes. With all axes, more draws would be of no class.
RANK = 32
# Images for each component of a mixture. Fewer would make draws copies of training images.
IMAGES_EACH = 12
_CHUNK = 4096
_PARTS = ("weights", "means", "factors")


def save_mixture(run, mixture):
    """Keep the `GaussianMixtures` of the codes of a run."""
    arrays = zip(_PARTS, mixture.get_weights())
    save_arrays(run, "decoder/codes.npz", **{f"visited_{part}": array for part, array in arrays})


def load_mixtures(run, file="decoder/codes.npz"):
    """Return the mixtures of a file; former versions kept two in encoder/visited.npz."""
    found = load_arrays(run, file)
    return [
        GaussianMixtures.of(*(found[f"{name}_{part}"] for part in _PARTS), name=name)
        for name in ("visited", "joint")
        if f"{name}_means" in found
    ]


def adapt_whitening(encoder, z, x_of, floor=1e-6):
    """Fit each expert's whitening to the images that it wins, from z (N, J, E)."""
    winner = _winners(z)
    won = [_some(np.flatnonzero(winner == expert)) for expert in range(z.shape[1])]

    def causes(expert):
        rows = won[expert][:AXES_IMAGES]
        return x_of(rows).reshape(len(rows), -1)

    encoder.whitening.adapt([z[rows, expert] for expert, rows in enumerate(won)], causes, floor)


def mean_directions(codes):
    """Return the mean (J, E) of each capsule's codes on images that it wins."""
    won = _won_rows(_winners(codes), codes.shape[1], least=codes.shape[2] + 1)
    return np.stack([codes[rows, j].mean(axis=0) for j, rows in enumerate(won)])


def _won_rows(winner, capsules, least=1):
    """Yield the rows (n,) of each capsule: those that it wins, or all if these are too few."""
    for capsule in range(capsules):
        won = np.flatnonzero(winner == capsule)
        yield _some(won if len(won) >= least else np.arange(len(winner)))


def _some(rows):
    return rows[spread(len(rows), DESCRIBED)]


def _winners(codes):
    return np.concatenate([winners(part) for part in chunks(codes, _CHUNK)])


def mixture_of(codes, shared, components, seed=0):
    """Return a `GaussianMixtures` of whole codes (N, J, E) and shared codes (N, K).

    Each winner has a group. Its components are the k-means clusters of the images that it wins,
    with one covariance.
    """
    winner = _winners(codes)
    won = np.bincount(winner, minlength=codes.shape[1])
    components = int(np.clip(won.max() // IMAGES_EACH, 1, components))
    fitted, of = {}, [capsule if count else None for capsule, count in enumerate(won)]
    for which, rows in zip(of, _won_rows(winner, codes.shape[1])):
        if which not in fitted:  # those that win no image have all images, and so the same fit
            x = np.concatenate([codes[rows].reshape(len(rows), -1), shared[rows]], axis=1)
            fitted[which] = tied_mixture(x, components, seed)
    fractions, means, factors = map(np.stack, zip(*(fitted[which] for which in of)))
    # A weight above zero lets a capsule draw that wins no image.
    weights = fractions * np.maximum(won, 1e-3)[:, None]
    return GaussianMixtures.of(weights, means, factors[:, None], name="visited")


def tied_mixture(x, components, seed):
    """Return fractions (K,), means (K, D) and the one factor (D, R) of clusters of rows (N, D).

    Few rows have fewer clusters; the fractions of the others are zero.
    """
    from sklearn.cluster import KMeans, kmeans_plusplus
    from sklearn.exceptions import ConvergenceWarning

    k = int(np.clip(len(x) // IMAGES_EACH, 1, components))
    with warnings.catch_warnings():
        # Equal codes leave clusters empty.
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        # More trials for each start would take several times as long.
        start, _ = kmeans_plusplus(x, k, random_state=seed, n_local_trials=1)
        cluster = KMeans(k, init=start, n_init=1, max_iter=30).fit_predict(x)
    counts = np.bincount(cluster, minlength=components)
    means = np.zeros((components, x.shape[1]))
    np.add.at(means, cluster, x)
    means /= np.maximum(counts, 1)[:, None]
    factor = _principal_axes(x - means[cluster], min(RANK, x.shape[1]))
    # The axes count one mean, and k means take as many degrees of freedom.
    freedom = max(1, len(x) - 1) / max(1, len(x) - k)
    return counts / len(x), means, factor * freedom**0.5


def _principal_axes(x, rank):
    """Return the strongest principal axes (K, rank) of rows (N, K), times their deviations."""
    from sklearn.decomposition import PCA

    factor = np.zeros((x.shape[1], rank))
    if not np.any(x[1:] != x[:-1]):  # scikit-learn divides by the variance
        return factor
    kept = min(rank, *x.shape)
    # The eigenvectors of a large covariance would take minutes.
    solver = "covariance_eigh" if x.shape[1] <= 500 else "randomized"
    found = PCA(kept, svd_solver=solver, iterated_power=2, random_state=0).fit(x)
    factor[:, :kept] = found.components_.T * np.sqrt(found.explained_variance_)
    return factor


def adapt_shared(shared, residuals, capsules):
    """Fit `SharedCapsules` to residuals (N, I, D) of images with capsules (N, J, E)."""
    rows, size = residuals.reshape(len(residuals), -1), shared.capsules * shared.dim
    mean = rows.mean(axis=0)
    axes = _principal_axes(rows, size).T.astype("float32")
    axes /= np.maximum(np.linalg.norm(axes, axis=1, keepdims=True), 1e-30)
    codes = (rows @ axes.T).astype("float64") - mean.astype("float64") @ axes.T
    winner = _winners(capsules)
    own = np.asarray(direction(capsules[np.arange(len(capsules)), winner]), "float64")
    means = conditional_means(codes, np.asarray(quadratic(own)), winner, shared.experts)
    shared.set_weights([mean.reshape(shared.mean.shape), axes.reshape(shared.kernel.shape), means])


def conditional_means(codes, terms, group, groups):
    """Return maps (G, T, K) from terms (N, T) to the means of codes (N, K), by ridge regression."""
    means = np.zeros((groups, terms.shape[1], codes.shape[1]))
    for which in range(groups):
        a = terms[group == which]
        ridge = RIDGE * np.eye(a.shape[1])
        means[which] = np.linalg.solve(a.T @ a + ridge, a.T @ codes[group == which])
    return means


def usage(codes, labels=None):
    """Return each capsule's mean probability, its deviation, and the fraction of images won.

    With labels (N,), also the number of classes, how many of them are the most frequent one of a
    capsule, and the mean share of a capsule's most frequent class. Training does not use labels.
    """
    lengths = [np.linalg.norm(part, axis=-1) for part in chunks(codes, _CHUNK)]
    probabilities = np.concatenate(lengths)
    winner = winners(probabilities)
    won = np.bincount(winner, minlength=codes.shape[1]) / len(codes)
    found = {}
    if labels is not None and labels.ndim == 1 and labels.min() >= 0:
        counts = np.zeros((codes.shape[1], labels.max() + 1), int)
        np.add.at(counts, (winner, labels), 1)
        used = counts[won > 0]
        found = {
            "classes": int(np.count_nonzero(counts.sum(axis=0))),
            "class_coverage": len(np.unique(used.argmax(axis=1))),
            "purity": round(float(np.mean(used.max(axis=1) / used.sum(axis=1))), 4),
        }
    return {
        **found,
        "probability_mean": [round(float(p), 4) for p in probabilities.mean(axis=0)],
        "probability_spread": [round(float(p), 4) for p in probabilities.std(axis=0)],
        "won": [round(float(share), 4) for share in won],
    }
