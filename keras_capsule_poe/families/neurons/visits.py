"""Where training takes the neurons: the routing and the codes of the images that capsules win."""

import numpy as np
import tensorflow as tf

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.data.rows import RowView, spread
from keras_capsule_poe.functions import fit_shares

_CHUNK = 512
# Images that shares are fitted to, at most.
SHARED = 60_000


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
    winner = []

    def routed(maps):
        v = visible_of(maps)
        c, y = layer.infer(v)
        return {"c": c, "activity": model.activity(y)}

    # The coefficients of all images at once would take more memory than their features.
    compiled = tf.function(routed, reduce_retracing=True, autograph=False)
    for start in range(0, len(feature_maps), _CHUNK):
        found = map_batches(compiled, feature_maps[start : start + _CHUNK])
        won = found["activity"].argmax(axis=1)
        for capsule in np.unique(won):
            total[capsule] += found["c"][won == capsule].sum(axis=0)
        winner.append(won)
    winner = np.concatenate(winner)
    counts = np.bincount(winner, minlength=capsules)
    mean = total.sum(axis=0) / len(winner)
    means = np.where(counts[:, None, None] > 0, total / np.maximum(counts, 1)[:, None, None], mean)
    coefficients = np.concatenate([mean[None], means])
    if layer.routing == "fixed":
        coefficients = layer.mean_coefficients.numpy()
    neurons = tf.function(
        lambda maps: layer(visible_of(maps)), reduce_retracing=True, autograph=False
    )
    visited = []
    for capsule in range(capsules):
        rows = _rows(winner, capsule, remembered)
        visited.append(map_batches(neurons, feature_maps[rows])[:, capsule])
    return {
        "coefficients": coefficients.astype("float32"),
        "visited": np.stack(visited).astype("float32"),
        "shares": (counts / len(winner)).astype("float32"),
    }


def settle_shares(layer, visible_of, feature_maps):
    """Sets a mixture's shares to those under which training images are most probable.

    While training they were what balanced the capsules. Of more than 60,000 images, so many
    that are evenly spread are looked at.

    Args:
        layer: `NeuronMixture`, trained.
        visible_of, feature_maps: See `visits`.
    """
    compiled = tf.function(
        lambda maps: layer.log_likelihoods(visible_of(maps)), reduce_retracing=True, autograph=False
    )
    some = RowView(feature_maps, spread(len(feature_maps), SHARED))
    found = map_batches(compiled, some).astype("float64")
    layer.routing_bias.assign(fit_shares(found, layer.routing_bias.numpy()))


def _rows(winner, capsule, number):
    """So many of the images that a capsule won, spread over them; of all if it won none."""
    won = np.flatnonzero(winner == capsule)
    won = won if len(won) else np.arange(len(winner))
    return won[np.arange(number) * len(won) // number]
