"""Routing and states of the expert neurons on the training images."""

import numpy as np
import tensorflow as tf

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.data.rows import RowView, spread
from keras_capsule_poe.functions import fit_shares

_CHUNK = 512
# Maximum number of images for fitting shares.
SHARED = 60_000


def visits(model, visible_of, feature_maps, remembered):
    """Return `coefficients` (1 + J, I, J), `visited` states (J, K, E) and `shares` (J,)."""
    layer = model.machine
    capsules = layer.capsules
    total = np.zeros((capsules, layer.kernel.shape[0], capsules))
    winner = []

    def routed(maps):
        v = visible_of(maps)
        c, y = layer.infer(v)
        return {"c": c, "activity": model.activity(y)}

    # In chunks: the coefficients of all images would take more memory than their features.
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
    # Means over the images that each capsule won, or over all images if it won none.
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
    """Set a mixture's shares by maximum likelihood on at most `SHARED` training images."""
    compiled = tf.function(
        lambda maps: layer.log_likelihoods(visible_of(maps)), reduce_retracing=True, autograph=False
    )
    some = RowView(feature_maps, spread(len(feature_maps), SHARED))
    found = map_batches(compiled, some).astype("float64")
    # Training used these biases for load balancing.
    layer.routing_bias.assign(fit_shares(found, layer.routing_bias.numpy()))


def _rows(winner, capsule, number):
    """Return `number` evenly spread images that a capsule won, or of all if it won none."""
    won = np.flatnonzero(winner == capsule)
    won = won if len(won) else np.arange(len(winner))
    return won[np.arange(number) * len(won) // number]
