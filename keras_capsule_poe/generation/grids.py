"""What a model makes of images, of its capsules and of its codes, as rows of images."""

import keras
import numpy as np

from keras_capsule_poe.generation.sampling import CHUNK


def capsule_grid(product, rows, domain, seed):
    """The paper's Figure 2: one column a capsule, `rows` samples of each.

    Args:
        product: `ProductOfExpertCapsules`.
        rows: int.
        domain: See `ProductOfExpertCapsules.draw`.
        seed: int.

    Returns:
        list of `rows` arrays (J, H, W, C), pixels in [0, 1].
    """
    columns = [
        product.sample_capsule(capsule, rows, seed * product.capsules + capsule, domain)["images"]
        for capsule in range(product.capsules)
    ]
    return list(np.stack([keras.ops.convert_to_numpy(column) for column in columns], axis=1))


def reconstruction_grid(product, images):
    """Originals, autoencoder, one contrastive-divergence step and whole-code decoding.

    Args:
        product: `ProductOfExpertCapsules`.
        images: Array (N, H, W, C), pixels in [0, 1].

    Returns:
        list of four arrays (N, H, W, C).
    """
    return [images, product.autoencoder(images), product.gibbs_step(images), product(images)]


def traversal_grid(product, image, capsule=None, steps=11, span=0.5):
    """One capsule's dimensions, varied one at a time around the code of an image.

    Args:
        product: `ProductOfExpertCapsules`.
        image: Array (1, H, W, C), pixels in [0, 1].
        capsule: int, or `None` for the most probable one.
        steps: int, values of each dimension, evenly spaced.
        span: float, each dimension of the squashed capsule moves by up to +-span.

    Returns:
        list of E arrays (steps, H, W, C), see `traversed`, and the capsule's index.
    """
    code = product.encode(image)
    if capsule is None:
        capsule = int(np.argmax(keras.ops.convert_to_numpy(code["probabilities"])[0]))
    return traversed(product, code["capsules"], capsule, range(product.dim), steps, span), capsule


def traversed(product, code, capsule, dimensions, steps, span):
    """One capsule's dimensions, varied one at a time around a code.

    Args:
        product: `ProductOfExpertCapsules`.
        code: Array (1, J, E), squashed.
        capsule: int.
        dimensions: Sequence of int, which of the E dimensions.
        steps, span: See `traversal_grid`.

    Returns:
        list of arrays (steps, H, W, C), one a dimension. Codes that would leave the unit ball
        are shortened to a length just below one.
    """
    base = keras.ops.convert_to_numpy(code)
    codes = np.tile(base, (len(dimensions), steps, 1, 1))
    for row, dimension in zip(codes, dimensions):
        row[:, capsule, dimension] += np.linspace(-span, span, steps, dtype="float32")
    lengths = np.linalg.norm(codes[:, :, capsule], axis=-1, keepdims=True)
    codes[:, :, capsule] *= np.minimum(1, 0.999 / np.maximum(lengths, 1e-12))
    # Many rows at once: small batches take nearly as long as large ones.
    at_once = max(1, CHUNK // steps)
    images = [
        keras.ops.convert_to_numpy(product.decode(np.concatenate(codes[i : i + at_once]))["images"])
        for i in range(0, len(codes), at_once)
    ]
    return np.split(np.concatenate(images), len(codes))
