"""Grids of images, and image files of them."""

from pathlib import Path

import keras
import numpy as np

from keras_capsule_poe.files import beside
from keras_capsule_poe.sampling import CHUNK


def grid(rows, gap=2, magnify=None):
    """Images side by side in one array.

    Args:
        rows: list of arrays (N, H, W, C), pixels in [0, 1], NaN shown black; one array a row.
        gap: int, pixels between images before magnification.
        magnify: int factor; `None` makes images at least 56 pixels high.

    Returns:
        uint8 array (height, width, C).
    """
    rows = [keras.ops.convert_to_numpy(row) for row in rows]
    height, width, channels = rows[0].shape[1:]
    columns = max(len(row) for row in rows)
    factor = magnify or max(1, -(-56 // height))
    canvas = np.full(
        (len(rows) * (height + gap) + gap, columns * (width + gap) + gap, channels), 96, "uint8"
    )
    for r, row in enumerate(rows):
        for c, image in enumerate(row):
            top, left = gap + r * (height + gap), gap + c * (width + gap)
            pixels = np.nan_to_num(np.clip(image, 0, 1)) * 255
            canvas[top : top + height, left : left + width] = np.round(pixels).astype("uint8")
    return canvas.repeat(factor, axis=0).repeat(factor, axis=1)


def picture(rows, **options):
    """A `grid` as a Pillow image, grey or RGB."""
    from PIL import Image

    pixels = grid(rows, **options)
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def save_grid(path, rows, **options):
    """Writes a `grid` as an image file, whole or not at all.

    Raises:
        RunError: If it cannot be written.
    """
    with beside(path, suffix=Path(path).suffix) as temporary:
        picture(rows, **options).save(temporary)


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
