"""A model's own Markov chain on its visible units, k steps from noise or from images."""

import numpy as np
from keras import ops

from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.randomness import step_seed


def chain(model, x, steps, every=1, kind=None, seed=0, burn_in=0):
    """States of Markov chains, a chunk of chains at a time.

    Args:
        model: `GenerativeModel`.
        x: Array (B, ...), visible units that the chains start from, see `start_from_noise` and
            `start_from_images`.
        steps: int, k, at least 0, after those of `burn_in`.
        every: int, a state is yielded after each so many steps.
        kind: `"meanfield"`, which draws nothing at random, or `"gibbs"`; `None`: the first that
            the model has.
        seed: int, of the draws of `"gibbs"`.
        burn_in: int, b, steps before the first state that is yielded, at least 0.

    Yields:
        (int, float32 array (B, ...)): steps done, and the visible units then; at b, b + every,
        b + 2 * every, ... and b + k.

    Raises:
        BadUse: If there is no chain, the model has none of this kind, or `steps`, `every` or
            `burn_in` is too small.

    Examples:

    >>> class Halving:
    ...     CHAINS = ("meanfield",)
    ...
    ...     def chain_step(self, x, seed=None):
    ...         return x / 2
    >>> [x.item() for _, x in chain(Halving(), np.ones((1, 1)), steps=3)]
    [1.0, 0.5, 0.25, 0.125]
    """
    kinds = model.CHAINS
    if kind not in (None, *kinds) or not kinds:
        has = f"one of {', '.join(map(repr, kinds))}" if kinds else "None: the model has no chain"
        raise BadUse(f"`kind` must be {has}. Received: kind={kind!r}")
    if not len(x) or min(steps, burn_in) < 0 or every < 1:
        raise BadUse(
            "`chain` needs starts, `steps` and `burn_in` of at least 0 and `every` of at least 1. "
            f"Received: {len(x)} starts, steps={steps}, every={every}, burn_in={burn_in}"
        )
    step = _step(model, kind or kinds[0], seed)
    x = ops.convert_to_numpy(x).astype("float32")
    last = burn_in + steps
    for done in range(last + 1):
        if done:
            x = step(x, done)
        if done == last or (done >= burn_in and (done - burn_in) % every == 0):
            yield done, x


def chain_arrays(model, x, steps, every=1, kind=None, seed=0, burn_in=0):
    """The states of `chain` as images.

    Args:
        model, x, steps, every, kind, seed, burn_in: See `chain`.

    Returns:
        dict of arrays: `images` (S, B, H, W, C) float32 in [0, 1]; `step` (S,), the steps done.

    Raises:
        BadUse: See `chain`.

    Examples:

    >>> class Halving:
    ...     CHAINS = ("meanfield",)
    ...
    ...     def chain_step(self, x, seed=None):
    ...         return x / 2
    ...
    ...     def from_visible(self, x):
    ...         return x
    >>> chain_arrays(Halving(), np.ones((3, 4, 4, 1)), steps=5, every=2)["step"].tolist()
    [0, 2, 4, 5]
    """
    import tensorflow as tf

    decode = tf.function(model.from_visible, reduce_retracing=True, autograph=False)
    states = chain(model, x, steps, every, kind, seed, burn_in)
    step, images = zip(*((done, map_batches(decode, x)) for done, x in states))
    return {"images": np.stack(images), "step": np.array(step)}


def start_from_noise(model, n, seed):
    """Visible units (N, ...) of noise, as an array, see `GenerativeModel.visible_noise`."""
    return ops.convert_to_numpy(model.visible_noise(n, seed))


def start_from_images(model, images):
    """Visible units (N, ...) of images (N, H, W, C), uint8 or pixels in [0, 1], as an array."""
    return map_batches(model.to_visible, images)


def _step(model, kind, seed):
    """A function of the states of all chains and the number of the step, compiled once."""
    import tensorflow as tf

    def one(x, seeds):
        return model.chain_step(x, seeds[0]) if kind == "gibbs" else model.chain_step(x)

    compiled = tf.function(one, reduce_retracing=True, autograph=False)

    def step(x, done):
        # Each chunk at each step has a seed of its own: no two chains see the same draws. The
        # first one's is that of the endpoint `gibbs`, which knows no chunks.
        chunks = -(-len(x) // CHUNK)
        seeds = (int(step_seed(seed, done)) + 7919 * np.arange(chunks)) % (2**31 - 1)
        return map_batches(compiled, (x, np.repeat(seeds, CHUNK)[: len(x)]))

    return step
