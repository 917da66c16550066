"""Statistics of the codes of all training images: whitening, and Gaussian mixtures for samples."""

import numpy as np

from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.core.numerics import direction
from keras_capsule_poe.data.mapping import chunks, spread
from keras_capsule_poe.models.base.clusters import fit_mixture
from keras_capsule_poe.models.capsule_poe.layers import quadratic

# Images per expert: enough for the axes of sixteen dimensions.
AXES_IMAGES = 1_000
# Images per capsule: enough for Gaussians of some hundred dimensions, and a limit on memory.
DESCRIBED = 20_000
# Ridge of the means of shared codes, in images: small beside those that an expert wins.
RIDGE = 3.0
# Rank of the covariances of whole codes.
JOINT_RANK = 64
_CHUNK = 4096


def describe(codes, settings, seed):
    """Return the mean directions and both mixtures of codes (N, J, E), a dict of arrays."""
    found = {"mean_direction": mean_directions(codes)}
    posterior = posterior_mixtures(codes, settings.posterior_components, seed)
    joint = joint_mixture(codes, settings.joint_components, JOINT_RANK, seed)
    for name, mixture in (("visited", posterior), ("joint", joint)):
        found |= {f"{name}_{part}": a.astype("float32") for part, a in mixture.items()}
    return found


def adapt_whitening(encoder, z, x_of, floor=1e-6):
    """Fit each expert's whitening to the images that it wins, from z (N, J, E)."""
    winner = _winners(z)
    won = [_some(np.flatnonzero(winner == expert)) for expert in range(z.shape[1])]

    def causes(expert):
        rows = won[expert][:AXES_IMAGES]
        return x_of(rows).reshape(len(rows), -1)

    encoder.whitening.adapt([z[rows, expert] for expert, rows in enumerate(won)], causes, floor)


def mean_directions(codes):
    """Return the mean (J, E) of each capsule's `won_codes`."""
    return np.stack([won.mean(axis=0) for won in won_codes(codes)])


def won_codes(codes):
    """Yield each capsule's codes (n, E) on images that it wins, or on all if it wins too few."""
    winner = _winners(codes)
    for capsule in range(codes.shape[1]):
        won = np.flatnonzero(winner == capsule)
        rows = _some(won if len(won) > codes.shape[2] else np.arange(len(codes)))
        yield codes[rows, capsule]


def _some(rows):
    return rows[spread(len(rows), DESCRIBED)]


def _winners(codes):
    return np.concatenate([winners(part) for part in chunks(codes, _CHUNK)])


def posterior_mixtures(codes, components, seed=0):
    """Fit a Gaussian mixture to each capsule's `won_codes`."""
    n, capsules, dim = codes.shape
    # Limit the components to those that all codes can fill, since more may exceed the memory.
    components = int(np.clip(n // (4 * dim), 1, components))
    weights = np.zeros((capsules, components))
    means = np.zeros((capsules, components, dim))
    factors = np.zeros((capsules, components, dim, dim))
    for capsule, won in enumerate(won_codes(codes)):
        x = np.asarray(won, "float64")
        k = int(np.clip(len(x) // (4 * dim), 1, components))
        # `reg_covar` gives the covariance of a few codes full rank.
        mixture = fit_mixture(x, k, seed, reg_covar=1e-4, tol=1e-2)
        weights[capsule, :k], means[capsule, :k] = mixture.weights, mixture.means
        factors[capsule, :k] = mixture.factors
    return {"weights": weights, "means": means, "factors": factors}


def joint_mixture(codes, components, rank, seed=0):
    """Fit one Gaussian mixture to whole codes (N, J, E), from k-means per winning capsule."""
    from sklearn.cluster import KMeans

    n, capsules, dim = codes.shape
    rank = min(rank, capsules * dim)
    components = int(np.clip(n // (2 * rank), 1, components))
    winner, flat = _winners(codes), codes.reshape(len(codes), -1)
    weights, means = (
        np.zeros((capsules, components)),
        np.zeros((capsules, components, capsules * dim)),
    )
    factors = np.zeros((capsules, components, capsules * dim, rank))
    for capsule in range(capsules):
        rows = np.flatnonzero(winner == capsule)
        won = flat[_some(rows)]
        k = int(np.clip(len(won) // (2 * rank), 1, components))
        part = (
            KMeans(k, n_init=1, random_state=seed).fit_predict(won) if k > 1 else np.zeros(len(won))
        )
        for component in range(k):
            x = won[part == component].astype("float64")
            if len(x):
                weights[capsule, component] = len(x) * len(rows) / len(won)
                means[capsule, component] = x.mean(axis=0)
            if len(x) > 1:
                factors[capsule, component] = _principal_axes(x, rank)
    whole = (1, capsules * components)
    return {
        "weights": weights.reshape(whole),
        "means": means.reshape(*whole, -1),
        "factors": factors.reshape(*whole, -1, rank),
    }


def _principal_axes(x, rank):
    """Return the strongest principal axes (K, rank) of rows (N, K), times their deviations."""
    from sklearn.decomposition import PCA

    factor = np.zeros((x.shape[1], rank))
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
    means, factors = conditional_gaussians(
        codes, np.asarray(quadratic(own)), winner, shared.experts
    )
    shared.set_weights(
        [mean.reshape(shared.mean.shape), axes.reshape(shared.kernel.shape), means, factors]
    )


def conditional_gaussians(codes, terms, group, groups):
    """Return means (G, T, K) and factors (G, K, K) of Gaussians of codes (N, K) in groups (N,).

    The mean of a code is linear in its terms (N, T), by ridge regression. The covariance of few
    codes is noisy, so each group has K more codes with the covariance of all.
    """
    size = codes.shape[1]
    means = np.zeros((groups, terms.shape[1], size))
    errors = np.array(codes)
    for which in range(groups):
        own = group == which
        a = terms[own]
        means[which] = np.linalg.solve(a.T @ a + RIDGE * np.eye(a.shape[1]), a.T @ codes[own])
        errors[own] -= a @ means[which]
    of_all = errors.T @ errors / len(errors)
    factors = np.zeros((groups, size, size))
    for which in range(groups):
        own = errors[group == which]
        covariance = (own.T @ own + size * of_all) / (len(own) + size)
        variances, axes = np.linalg.eigh(covariance)
        factors[which] = axes * np.sqrt(np.maximum(variances, 0))
    return means, factors


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
