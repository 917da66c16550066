"""Gibbs sampling of visible units, hidden units and latent parents."""

from keras import ops

from keras_capsule_poe.functions.passes import Passes
from keras_capsule_poe.functions.randomness import streams


def latent_chain(router, harmonium, x, coefficients, steps, seed):
    """Return x, y and coefficients after Gibbs steps over all three layers; no seed: mean field."""
    maps = harmonium.maps
    biases = harmonium.hidden_bias, harmonium.visible_bias
    chain = Passes(maps, router, harmonium.hidden, harmonium.visible, *biases)
    stream = None if seed is None else streams(seed, 1)[0]

    def sweep(i, state):
        x, _, c = state
        (seeds,) = chain.seeds(None if stream is None else stream.later(i), 1)
        x, y, c = chain.sweep(maps.lay_pairs(c), maps.lay_inputs(x), seeds, None)
        return maps.unlay_inputs(x), maps.unlay_outputs(y), maps.unlay_pairs(c)

    x, c = chain.cast(x), chain.cast(coefficients)
    chain.all_at_once(x)
    return ops.fori_loop(1, steps, sweep, sweep(0, (x, None, c)))
