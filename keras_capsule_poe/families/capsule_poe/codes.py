"""Where training takes the capsules: the codes of all training images, and what describes them."""

import functools

import numpy as np

from keras_capsule_poe.data.rows import spread
from keras_capsule_poe.functions.winners import winners
from keras_capsule_poe.generation.mixtures import fit_mixture

# Of each expert; enough for the directions of sixteen dimensions.
AXES_IMAGES = 1_000
# Of each capsule; enough for Gaussians of some hundred dimensions, and a limit on memory.
DESCRIBED = 20_000
_CHUNK = 4096


class CodeDescription:
    """How the codes of training are described, for capsules to be drawn where training went.

    Args:
        frames: bool, whether codes are turned into each expert's own frame.
        visited_components: int, Gaussians that describe the codes of one capsule, at most.
        joint_components: int, Gaussians that describe the whole codes of the images that one
            capsule wins, at most.
        joint_rank: int, principal axes of each of those.

    Raises:
        ValueError: If a number is below one.
    """

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
        """Sets the encoder's frames, if codes are turned; arguments as of `adapt_frames`."""
        if self.frames:
            adapt_frames(encoder, z, x_of)

    def describe(self, codes, seed):
        """What describes codes: of each capsule at most 20,000 images that it wins are looked at.

        Args:
            codes: Array (N, J, E), squashed; may be memory-mapped.
            seed: int.

        Returns:
            dict of arrays: `mean_direction`, and `visited_` and `joint_` with `weights`, `means`
            and `factors` each, for `GaussianMixtures.of`.
        """
        found = {"mean_direction": mean_directions(codes)}
        for name, mixture in (
            ("visited", visited_mixtures(codes, self.visited_components, seed)),
            ("joint", joint_mixture(codes, self.joint_components, self.joint_rank, seed)),
        ):
            found |= {f"{name}_{part}": a.astype("float32") for part, a in mixture.items()}
        return found


def adapt_frames(encoder, z, x_of):
    """Gives each expert the frame of the images that it wins.

    Args:
        encoder: `CapsuleEncoder`.
        z: Array (N, J, E), the experts of all training images, before the squash; may be
            memory-mapped.
        x_of: Function of indices to the primary capsules (n, I, D) of those images.
    """
    winner = _winners(z)
    won = [_some(np.flatnonzero(winner == expert)) for expert in range(z.shape[1])]

    def causes(expert):
        rows = won[expert][:AXES_IMAGES]
        return x_of(rows).reshape(len(rows), -1)

    encoder.frames.adapt([z[rows, expert] for expert, rows in enumerate(won)], causes)


def mean_directions(codes):
    """Mean of each capsule's `won_codes`, (J, E)."""
    return np.stack([won.mean(axis=0) for won in won_codes(codes)])


def won_codes(codes):
    """For each capsule its codes (n, E) on the images that it wins.

    A capsule that hardly ever wins is described by its codes on all images.
    """
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
    """A function of codes (N, ...), which may be memory-mapped, a few at a time."""
    starts = range(0, len(codes), _CHUNK)
    return np.concatenate([function(codes[start : start + _CHUNK]) for start in starts])


def visited_mixtures(codes, components, seed=0):
    """For each capsule the mixture of Gaussians of its codes on the images that it wins.

    Args:
        codes: Array (N, J, E), squashed.
        components: int, K, at most; a capsule that wins few images gets fewer.
        seed: int.

    Returns:
        dict of arrays for `GaussianMixtures.of`: J groups of K components of dimension E, or of
        fewer where there are few codes.
    """
    n, capsules, dim = codes.shape
    # No more than all codes could fill: what is asked for may be more than memory holds.
    components = int(np.clip(n // (4 * dim), 1, components))
    weights = np.zeros((capsules, components))
    means = np.zeros((capsules, components, dim))
    factors = np.zeros((capsules, components, dim, dim))
    for capsule, won in enumerate(won_codes(codes)):
        x = won.astype("float64")
        k = int(np.clip(len(x) // (4 * dim), 1, components))
        # The covariance of a few codes is not of full rank without the addition.
        mixture = fit_mixture(x, k, seed, reg_covar=1e-4, tol=1e-2)
        weights[capsule, :k], means[capsule, :k] = mixture.weights, mixture.means
        factors[capsule, :k] = mixture.factors
    return {"weights": weights, "means": means, "factors": factors}


def joint_mixture(codes, components, rank, seed=0):
    """A mixture of Gaussians of whole codes, those that one capsule wins apart from the others.

    The codes that a capsule wins are split by k-means, and each part is described by its mean
    and its principal axes.

    Args:
        codes: Array (N, J, E), squashed.
        components: int, K, for each capsule, at most.
        rank: int, R; the principal axes that each component keeps.
        seed: int.

    Returns:
        dict of arrays for `GaussianMixtures.of`: one group of J K components of dimension J E
        and rank R, or fewer where there are not as many codes or dimensions. A component
        without codes has weight zero.
    """
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
    """The strongest axes of rows (N, K), each of the length of its deviation, (K, rank)."""
    if len(x) < x.shape[1]:
        # Few rows have few axes: those of a covariance as large would take minutes.
        _, deviations, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
        variances, axes = np.square(deviations) / (len(x) - 1), axes.T
    else:
        variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(x.T)))
    strongest = np.argsort(-variances)[:rank]
    factor = np.zeros((x.shape[1], rank))
    factor[:, : len(strongest)] = axes[:, strongest] * np.sqrt(np.maximum(variances[strongest], 0))
    return factor


def usage(codes):
    """For each capsule: mean and spread of its probability, and how often it is the highest."""
    probabilities = _in_chunks(functools.partial(np.linalg.norm, axis=-1), codes)
    won = np.bincount(winners(probabilities), minlength=codes.shape[1]) / len(codes)
    return {
        "probability_mean": [round(float(p), 4) for p in probabilities.mean(axis=0)],
        "probability_spread": [round(float(p), 4) for p in probabilities.std(axis=0)],
        "won": [round(float(share), 4) for share in won],
    }
