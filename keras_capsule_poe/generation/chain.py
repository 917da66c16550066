"""The model's own Markov chain on primary capsules, one up-down pass a step.

A pass sends the experts' squashed means down and draws nothing at random, so that a chain depends
on its start alone and settles near what the model finds likely.
"""

import numpy as np
from keras import ops

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.functions import squash
from keras_capsule_poe.generation.sampling import CHUNK


def chain(product, x, steps, every=1):
    """States of Markov chains, routed anew each step, a chunk of chains at a time.

    Args:
        product: `ProductOfExpertCapsules`.
        x: Array (B, I, D), squashed primary capsules that the chains start from.
        steps: int, k, at least 0.
        every: int, a state is yielded after each so many steps.

    Yields:
        (int, float32 array (B, I, D)): steps done, and the squashed primary capsules then; at 0,
        every, 2 * every, ... and k.

    Raises:
        ValueError: If there is no chain, or `steps` or `every` is too small.
    """
    if not len(x) or steps < 0 or every < 1:
        raise ValueError(
            "`chain` needs starts, `steps` of at least 0 and `every` of at least 1. "
            f"Received: {len(x)} starts, steps={steps}, every={every}"
        )
    step = _in_chunks(product.encoder.experts.mean_field_step)
    x = ops.convert_to_numpy(x).astype("float32")
    for done in range(steps + 1):
        if done:
            x = step(x)
        if done % every == 0 or done == steps:
            yield done, x


def chain_arrays(product, x, steps, every=1):
    """The states of `chain` as images.

    Args:
        product, x, steps, every: See `chain`.

    Returns:
        dict of arrays: `images` (S, B, H, W, C) float32 in [0, 1]; `step` (S,), the steps done.
    """
    decode = _in_chunks(product.from_primary)
    states = [(done, decode(x)) for done, x in chain(product, x, steps, every)]
    step, images = zip(*states)
    return {"images": np.stack(images), "step": np.array(step)}


# Noise has little in common with an expert's few directions: as long as features it turns none on,
# and the chain dies out at the mean image.
LONGER = 8


def noise_start(product, n, seed):
    """Chains that start from noise: the squash of Gaussians eight times as long as features.

    Args:
        product: `ProductOfExpertCapsules`.
        n: int, how many.
        seed: int.

    Returns:
        float32 array (N, I, D): squash(z), the root mean square of |z_i| eight times the
        `target_length` of the primary capsules.
    """
    primary = product.primary
    noise = np.random.default_rng(seed).standard_normal((n, primary.capsules, primary.dim))
    # |z_i|^2 sums over D dimensions.
    z = LONGER * primary.target_length / np.sqrt(primary.dim) * noise
    return ops.convert_to_numpy(squash(z.astype("float32")))


def data_start(product, images):
    """Chains that start from images.

    Args:
        product: `ProductOfExpertCapsules`.
        images: Array (N, H, W, C), uint8, or pixels in [0, 1].

    Returns:
        Array (N, I, D), squashed primary capsules.
    """
    return map_batches(product.to_primary, images)


def _in_chunks(function):
    """`function`, compiled once, of arrays of any length."""
    import tensorflow as tf

    compiled = tf.function(function, reduce_retracing=True)

    def whole(x):
        return np.concatenate([compiled(x[i : i + CHUNK]) for i in range(0, len(x), CHUNK)])

    return whole
