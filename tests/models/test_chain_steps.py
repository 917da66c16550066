"""Contrastive divergence of k passes in the encoder's training, against NumPy in float64."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsuleEncoder, CapsulePoE

I, D, J, E, RATE = 6, 4, 3, 5, 0.3


def squash(z):
    length = np.linalg.norm(z, axis=-1, keepdims=True)
    return length * z / (1 + length**2)


def ascent(kernel, c, x, steps):
    """c_ij (score(z_j) x_i^T - score(z~_j) x~_i^T), the mean over images, c that of the data."""

    def up(x):
        return np.einsum("bij,ijed,bid->bje", c, kernel, x)

    def statistics(x):
        z = up(x)
        score = 2 * z / (1 + np.sum(z**2, axis=-1, keepdims=True))
        return np.einsum("bij,bje,bid->ijed", c, score, x) / len(x)

    model = x
    for _ in range(steps):
        model = squash(np.einsum("bij,ijed,bje->bid", c, kernel, squash(up(model))))
    return statistics(x) - statistics(model)


def trained(steps):
    """The maps before a step of training, the routing and the data, and the maps after."""
    x = np.random.default_rng(0).uniform(0, 0.5, (8, I, D)).astype("float32")
    start = keras.initializers.RandomNormal(stddev=0.7, seed=1)
    experts = CapsulePoE(J, E, kernel_initializer=start, implementation="reference")
    model = CapsuleEncoder(experts, cd_steps=steps)
    model.build((None, I, D))
    before = np.asarray(experts.kernel).astype("float64")
    c = np.asarray(experts.route(x).coefficients).astype("float64")
    model.compile(keras.optimizers.SGD(RATE), jit_compile=False, run_eagerly=True)
    model.fit(x, batch_size=len(x), verbose=0)
    return before, c, x.astype("float64"), np.asarray(experts.kernel)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_update_is_that_of_so_many_passes(steps):
    """Rejects one pass instead of three, and three instead of one."""
    before, c, x, after = trained(steps)
    expected = before + RATE * ascent(before, c, x, steps)
    # float32 sums of 8 images.
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-6)
    other = before + RATE * ascent(before, c, x, 4 - steps)
    assert np.abs(after - other).max() > 1e-3


def test_it_is_kept_with_the_model():
    model = CapsuleEncoder(CapsulePoE(J, E), cd_steps=3)
    assert CapsuleEncoder.from_config(model.get_config()).cd_steps == 3
    with pytest.raises(ValueError, match="`cd_steps` must be a positive integer"):
        CapsuleEncoder(CapsulePoE(J, E), cd_steps=0)
