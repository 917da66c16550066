"""Gibbs sampling of hidden neurons alone, with Gaussian visible neurons integrated out.

`z = a + W x` is Gaussian given y, with mean `a + W (b - mu) + W W^T y` and covariance `W W^T`.
So a step costs E x E matrices, independent of the number of visible neurons.
"""

import keras
from keras import ops

from keras_capsule_poe.functions.harmonium_units import offset_of, plain_units
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.units import GaussianUnits


def hidden_chain(harmonium, y, steps, seed):
    """Run Gibbs steps on hidden states y (B, E), like `gibbs_chain` from the hidden side."""
    visible, kernel = plain_units(harmonium.visible), harmonium.maps.kernel
    if len(kernel.shape) != 2 or not isinstance(visible, GaussianUnits):
        raise ValueError(
            "`harmonium` must have DenseMaps and GaussianUnits as its visible side. Received: "
            f"{type(harmonium.maps).__name__}, {type(visible).__name__}"
        )
    away = harmonium.visible_bias - offset_of(harmonium.visible, kernel.dtype)
    field = harmonium.hidden_bias + ops.matmul(kernel, away)
    gram = ops.matmul(kernel, ops.transpose(kernel))
    # Zero eigenvalues (more hidden than visible neurons) may round to negative ones.
    variances, axes = ops.linalg.eigh(gram)
    root = ops.sqrt(ops.maximum(variances, 0))[:, None] * ops.transpose(axes)
    noises, draws = streams(seed, 2)

    def step(i, y):
        noise = keras.random.normal(ops.shape(y), dtype=gram.dtype, seed=noises.later(i))
        z = field + ops.matmul(y, gram) + ops.matmul(noise, root)
        return harmonium.hidden.sample(z, draws.later(i))

    return ops.fori_loop(0, steps, step, ops.cast(y, gram.dtype))
