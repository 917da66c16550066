"""Gibbs sampling of hidden neurons alone, where visible ones are Gaussian.

What the visible neurons give the hidden ones is Gaussian given these:

    z = a + W x,    x ~ N(b + W^T y, 1) - mu,    so    z ~ N(a + W (b - mu) + W W^T y, W W^T)

so that a step takes E x E matrices, however many visible neurons there are.
"""

import keras
from keras import ops

from keras_capsule_poe.functions.harmonium_units import offset_of, plain_units
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.units import GaussianUnits


def hidden_chain(harmonium, y, steps, seed):
    """Hidden neurons after some steps of Gibbs sampling, the visible ones drawn and forgotten.

    The same law as `gibbs_chain` with its sides exchanged.

    Args:
        harmonium: `Harmonium` with `DenseMaps` and Gaussian visible units, centred or not.
        y: Tensor (B, E), what the hidden units send at the start.
        steps: int or scalar integer tensor, zero or more.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

    Returns:
        Tensor (B, E), what they send.

    Raises:
        ValueError: If the visible units are not Gaussian, or a side is not flat.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> machine = Harmonium(DenseMaps(ops.ones((3, 400))), visible=GaussianUnits())
    >>> hidden_chain(machine, ops.zeros((2, 3)), steps=10, seed=0).shape
    TensorShape([2, 3])

    Reference:

    - [Geman & Geman, 1984](https://doi.org/10.1109/TPAMI.1984.4767596)
    """
    visible, kernel = plain_units(harmonium.visible), harmonium.maps.kernel
    if len(kernel.shape) != 2 or not isinstance(visible, GaussianUnits):
        raise ValueError(
            "`harmonium` must have DenseMaps and GaussianUnits as its visible side. Received: "
            f"{type(harmonium.maps).__name__}, {type(visible).__name__}"
        )
    away = harmonium.visible_bias - offset_of(harmonium.visible, kernel.dtype)
    field = harmonium.hidden_bias + ops.matmul(kernel, away)
    gram = ops.matmul(kernel, ops.transpose(kernel))
    # Where neurons are more than visible ones it has zeros, and rounding makes them negative.
    variances, axes = ops.linalg.eigh(gram)
    root = ops.sqrt(ops.maximum(variances, 0))[:, None] * ops.transpose(axes)
    noises, draws = streams(seed, 2)

    def step(i, y):
        noise = keras.random.normal(ops.shape(y), dtype=gram.dtype, seed=noises.later(i))
        z = field + ops.matmul(y, gram) + ops.matmul(noise, root)
        return harmonium.hidden.sample(z, draws.later(i))

    return ops.fori_loop(0, steps, step, ops.cast(y, gram.dtype))
