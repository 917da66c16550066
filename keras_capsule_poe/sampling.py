"""Images of codes, and Markov chains of models, in chunks."""

import numpy as np
from keras import ops

from keras_capsule_poe.core.randomness import step_seed
from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.errors import BadUse


def render(model, capsules):
    """Return the images (N, H, W, C) of codes (N, J, E), as an array."""
    return map_batches(lambda codes: model.render(codes)["images"], capsules)


def chain(model, x, steps, every=1, kind=None, seed=0, burn_in=0):
    """Yield (step, states (B, ...)) of Markov chains, after `burn_in` every `every` steps."""
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
        # The last state is always yielded.
        if done == last or (done >= burn_in and (done - burn_in) % every == 0):
            yield done, x


def chain_arrays(model, x, steps, every=1, kind=None, seed=0, burn_in=0):
    """Return the states of `chain` as `images` (S, B, H, W, C), and their `step` (S,)."""
    import tensorflow as tf

    decode = tf.function(model.from_visible, reduce_retracing=True, autograph=False)
    states = chain(model, x, steps, every, kind, seed, burn_in)
    step, images = zip(*((done, map_batches(decode, x)) for done, x in states))
    return {"images": np.stack(images), "step": np.array(step)}


def start_from_noise(model, n, seed):
    """Return visible units (N, ...) of noise, as an array."""
    return ops.convert_to_numpy(model.visible_noise(n, seed))


def start_from_images(model, images):
    """Return the visible units (N, ...) of images (N, H, W, C), as an array."""
    return map_batches(model.to_visible, images)


def _step(model, kind, seed):
    """Return a compiled function from all states and the step number to the next states."""
    import tensorflow as tf

    def one(x, seeds):
        return model.chain_step(x, seeds[0]) if kind == "gibbs" else model.chain_step(x)

    compiled = tf.function(one, reduce_retracing=True, autograph=False)

    def step(x, done):
        # Each chunk has a different seed at each step, so no two chains use the same draws.
        # The first chunk has the seed of the endpoint `gibbs`, which has no chunks.
        chunks = -(-len(x) // CHUNK)
        seeds = (int(step_seed(seed, done)) + 7919 * np.arange(chunks)) % (2**31 - 1)
        return map_batches(compiled, (x, np.repeat(seeds, CHUNK)[: len(x)]))

    return step
