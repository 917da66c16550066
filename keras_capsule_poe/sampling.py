"""Many samples as arrays, a chunk at a time."""

import numpy as np

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

    @tf.function(reduce_retracing=True)
    def draw(noise, capsule):
        codes = product.draw(noise, capsule, domain)
        return product.decode(codes)["images"], codes

    images = np.empty((n, *product.autoencoder.image_shape), "float32")
    codes = np.empty((n, product.capsules, product.dim), "float32")
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        images[part], codes[part] = draw(noise[part], capsule[part].astype("int32"))
    return {"images": images, "capsule": capsule, "capsules": codes}
