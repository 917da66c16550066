"""Where training takes the neurons: the routing and the codes of the images that capsules win."""

import numpy as np
import tensorflow as tf

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.functions import fit_shares

_CHUNK = 512


def visits(model, visible_of, feature_maps, remembered):
    """What the capsules do on the training images that they win.

    Args:
        model: `NeuronExperts`, trained.
        visible_of: Function of feature maps (B, h, w, F) to visible neurons (B, I, D).
        feature_maps: Array (N, h, w, F).
        remembered: int, K, images of each capsule whose neurons are kept.

    Returns:
        dict of arrays: `coefficients` (1 + J, I, J), the mean routing of all images and of
        those that each capsule won, of all for one that wins none; `visited` (J, K, E),
        p(h | v) of images that each won; `shares` (J,), how many it won.
    """
    layer = model.machine
    capsules = layer.capsules
    total = np.zeros((capsules, layer.kernel.shape[0], capsules))
    winner, neurons = [], []

    def routed(maps):
        v = visible_of(maps)
        c, y = layer.infer(v)
        return {"c": c, "y": y, "activity": model.activity(y), "p": layer(v)}

    # The coefficients of all images at once would take more memory than their features.
    compiled = tf.function(routed, reduce_retracing=True, autograph=False)
    for start in range(0, len(feature_maps), _CHUNK):
        found = map_batches(compiled, feature_maps[start : start + _CHUNK])
        won = found["activity"].argmax(axis=1)
        for capsule in np.unique(won):
            total[capsule] += found["c"][won == capsule].sum(axis=0)
        winner.append(won)
        neurons.append(found["p"])
    winner, neurons = np.concatenate(winner), np.concatenate(neurons)
    counts = np.bincount(winner, minlength=capsules)
    mean = total.sum(axis=0) / len(winner)
    means = np.where(counts[:, None, None] > 0, total / np.maximum(counts, 1)[:, None, None], mean)
    coefficients = np.concatenate([mean[None], means])
    if layer.routing == "fixed":
        coefficients = layer.mean_coefficients.numpy()
    visited = np.stack([_rows(neurons, winner, j, remembered) for j in range(capsules)])
    return {
        "coefficients": coefficients.astype("float32"),
        "visited": visited.astype("float32"),
        "shares": (counts / len(winner)).astype("float32"),
    }


def settle_shares(layer, visible_of, feature_maps):
    """Sets a mixture's shares to those under which training images are most probable.

    While training they were what balanced the capsules.

    Args:
        layer: `NeuronMixture`, trained.
        visible_of, feature_maps: See `visits`.
    """
    compiled = tf.function(
        lambda maps: layer.log_likelihoods(visible_of(maps)), reduce_retracing=True, autograph=False
    )
    found = map_batches(compiled, feature_maps).astype("float64")
    layer.routing_bias.assign(fit_shares(found, layer.routing_bias.numpy()))


def _rows(neurons, winner, capsule, number):
    """So many rows of a capsule's neurons (number, E), spread over the images that it won."""
    won = neurons[winner == capsule, capsule]
    won = won if len(won) else neurons[:, capsule]
    return won[np.arange(number) * len(won) // number]
