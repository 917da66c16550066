"""Many samples as arrays, a chunk at a time."""

import numpy as np
from keras import ops

CHUNK = 256


def sample_arrays(product, n, seed, domain="complete"):
    """Images, each from one capsule drawn at random.

    Args:
        product: `ProductOfExpertCapsules`.
        n: int, how many.
        seed: int.
        domain: See `ProductOfExpertCapsules.draw`.

    Returns:
        dict of arrays: `images` (N, H, W, C) float32 in [0, 1]; `capsule` (N,), which capsule
        was on; `capsules` (N, J, E), the whole code, squashed.
    """
    import tensorflow as tf

    random = np.random.default_rng(seed)
    capsule = random.integers(product.capsules, size=n)
    noise = random.standard_normal((n, product.dim)).astype("float32")
    choice = random.random(n, dtype="float32")

    @tf.function(reduce_retracing=True)
    def draw(noise, choice, capsule):
        codes = product.draw(noise, choice, capsule, domain)
        return product.decode(codes)["images"], codes

    images = np.empty((n, *product.autoencoder.image_shape), "float32")
    codes = np.empty((n, product.capsules, product.dim), "float32")
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        images[part], codes[part] = draw(noise[part], choice[part], capsule[part].astype("int32"))
    return {"images": images, "capsule": capsule, "capsules": codes}


def joint_arrays(product, n, seed):
    """Images of whole codes, all capsules drawn together.

    Args:
        product: `ProductOfExpertCapsules`.
        n: int, how many.
        seed: int.

    Returns:
        dict of arrays: `images` (N, H, W, C) float32 in [0, 1]; `capsules` (N, J, E), squashed.
    """
    starts = range(0, n, CHUNK)
    seeds = np.random.default_rng(seed).integers(2**31 - 1, size=len(starts))
    chunks = [
        product.sample_joint(min(CHUNK, n - start), int(chunk_seed))
        for start, chunk_seed in zip(starts, seeds)
    ]
    return {
        name: np.concatenate([ops.convert_to_numpy(chunk[name]) for chunk in chunks])
        for name in ("images", "capsules")
    }
