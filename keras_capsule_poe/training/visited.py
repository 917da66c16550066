"""Where training takes each capsule: the codes of all training images, and their statistics."""

import numpy as np

from keras_capsule_poe.functions import unsquash
from keras_capsule_poe.training.parts import primary_batches


def codes_and_statistics(encoder, primary, features):
    """Codes of all training images and, for each capsule, the region that they visit.

    Args:
        encoder: `CapsuleEncoder`.
        primary: `PrimaryCapsules`.
        features: Array (N, h, w, F).

    Returns:
        float32 codes (N, J, E), squashed; and the dict of the `ProductOfExpertCapsules`
        statistics: `mean_direction` (J, E), the mean of the codes, and `visited_mean` (J, E)
        and `visited_factor` (J, E, E), mean and factor of the covariance of the unsquashed
        codes of the images on which the capsule was the most probable.
    """
    import tensorflow as tf

    code = tf.function(encoder, reduce_retracing=True)
    stream = primary_batches(primary, features, batch_size=256, seed=0, shuffle=False)
    codes = np.concatenate([code(x).numpy() for x in stream])
    return codes, _statistics(codes)


def _statistics(codes):
    _, capsules, dim = codes.shape
    winner = np.linalg.norm(codes, axis=-1).argmax(axis=-1)
    mean = np.zeros((capsules, dim))
    factor = np.zeros((capsules, dim, dim))
    for capsule in range(capsules):
        won = codes[winner == capsule, capsule]
        # A capsule that never wins is described by all of its codes.
        z = unsquash(won if len(won) > 1 else codes[:, capsule]).numpy().astype("float64")
        mean[capsule] = z.mean(axis=0)
        variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(z.T)) if len(z) > 1 else np.zeros((dim, dim)))
        factor[capsule] = axes * np.sqrt(np.maximum(variances, 0))
    return {
        "mean_direction": codes.mean(axis=0),
        "visited_mean": mean.astype("float32"),
        "visited_factor": factor.astype("float32"),
    }


def usage(codes):
    """For each capsule: mean and spread of its probability, and how often it is the highest."""
    probabilities = np.linalg.norm(codes, axis=-1)
    won = np.bincount(probabilities.argmax(axis=-1), minlength=codes.shape[1]) / len(codes)
    return {
        "probability_mean": [round(float(p), 4) for p in probabilities.mean(axis=0)],
        "probability_spread": [round(float(p), 4) for p in probabilities.std(axis=0)],
        "won": [round(float(share), 4) for share in won],
    }
