"""Statistics of the codes of all training images, for whitening and for samples."""

import functools

import numpy as np

from keras_capsule_poe.data.rows import spread
from keras_capsule_poe.functions.winners import winners
from keras_capsule_poe.generation.mixtures import fit_mixture

# Images per expert: enough for the axes of sixteen dimensions.
AXES_IMAGES = 1_000
# Images per capsule: enough for Gaussians of some hundred dimensions, and a limit on memory.
DESCRIBED = 20_000
_CHUNK = 4096


class CodeDescription:
    """Whitening of the training codes, and Gaussian mixtures from which capsules are drawn."""

    def __init__(self, frames=True, visited_components=10, joint_components=3, joint_rank=64):
        numbers = {
            "visited_components": visited_components,
            "joint_components": joint_components,
            "joint_rank": joint_rank,
        }
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value!r}")
        self.frames = frames
        self.visited_components = visited_components
        self.joint_components, self.joint_rank = joint_components, joint_rank

    def turn(self, encoder, z, x_of):
        """Fit the encoder's whitening to codes z if `frames` is set."""
        if self.frames:
            adapt_frames(encoder, z, x_of)

    def describe(self, codes, seed):
        """Return `mean_direction` and the arrays of both mixtures for codes (N, J, E)."""
        found = {"mean_direction": mean_directions(codes)}
        for name, mixture in (
            ("visited", visited_mixtures(codes, self.visited_components, seed)),
            ("joint", joint_mixture(codes, self.joint_components, self.joint_rank, seed)),
        ):
            found |= {f"{name}_{part}": a.astype("float32") for part, a in mixture.items()}
        return found


def adapt_frames(encoder, z, x_of):
    """Fit each expert's whitening to the images that it wins, from z (N, J, E)."""
    winner = _winners(z)
    won = [_some(np.flatnonzero(winner == expert)) for expert in range(z.shape[1])]

    def causes(expert):
        rows = won[expert][:AXES_IMAGES]
        return x_of(rows).reshape(len(rows), -1)

    encoder.frames.adapt([z[rows, expert] for expert, rows in enumerate(won)], causes)


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
    return _in_chunks(winners, codes)


def _in_chunks(function, codes):
    """Apply a function to codes (N, ...) in chunks; the codes may be memory-mapped."""
    starts = range(0, len(codes), _CHUNK)
    return np.concatenate([function(codes[start : start + _CHUNK]) for start in starts])


def visited_mixtures(codes, components, seed=0):
    """Fit a Gaussian mixture to each capsule's `won_codes`, with at most `components` each."""
    n, capsules, dim = codes.shape
    # Limit the components to those that all codes can fill, since more may exceed the memory.
    components = int(np.clip(n // (4 * dim), 1, components))
    weights = np.zeros((capsules, components))
    means = np.zeros((capsules, components, dim))
    factors = np.zeros((capsules, components, dim, dim))
    for capsule, won in enumerate(won_codes(codes)):
        x = won.astype("float64")
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
    if len(x) < x.shape[1]:
        # Few rows have few axes. The eigenvectors of the large covariance would take minutes.
        _, deviations, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
        variances, axes = np.square(deviations) / (len(x) - 1), axes.T
    else:
        variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(x.T)))
    strongest = np.argsort(-variances)[:rank]
    factor = np.zeros((x.shape[1], rank))
    factor[:, : len(strongest)] = axes[:, strongest] * np.sqrt(np.maximum(variances[strongest], 0))
    return factor


def usage(codes):
    """Return each capsule's mean probability, its deviation, and the fraction of images won."""
    probabilities = _in_chunks(functools.partial(np.linalg.norm, axis=-1), codes)
    won = np.bincount(winners(probabilities), minlength=codes.shape[1]) / len(codes)
    return {
        "probability_mean": [round(float(p), 4) for p in probabilities.mean(axis=0)],
        "probability_spread": [round(float(p), 4) for p in probabilities.std(axis=0)],
        "won": [round(float(share), 4) for share in won],
    }
