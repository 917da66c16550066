"""Gibbs sampling of visible units, hidden units and their latent parents."""

from keras import ops

from keras_capsule_poe.functions.passes import Passes
from keras_capsule_poe.functions.randomness import streams


def latent_chain(router, harmonium, x, coefficients, steps, seed):
    """What all three layers are after some sweeps: h of p(h | v, c), v, and then c, in turn.

    Args:
        router: `LatentRouter` of the harmonium's maps.
        harmonium: `Harmonium` of the same maps; its coefficients are not used.
        x: Tensor (B, I, D), what the visible units send at the start.
        coefficients: Tensor (B, I, J), s times the parents at the start, one-hot.
        steps: int or scalar integer tensor, one or more.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`; `None`: mean field.

    Returns:
        Tensors x, the y that it was drawn from, and the coefficients drawn given both.

    Examples:

    >>> from keras_capsule_poe.functions import EinsumMaps, Harmonium, LatentRouter
    >>> maps, x = EinsumMaps(ops.ones((6, 5, 3, 4))), ops.ones((2, 6, 4))
    >>> router = LatentRouter(maps)
    >>> c, _ = router.route(x)
    >>> machine = Harmonium(maps, coefficients=c)
    >>> [state.shape for state in latent_chain(router, machine, x, c, steps=3, seed=0)]
    [TensorShape([2, 6, 4]), TensorShape([2, 5, 3]), TensorShape([2, 6, 5])]
    """
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
