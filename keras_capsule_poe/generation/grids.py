"""What a model draws, and what it makes of images and of codes, as rows of images."""

import numpy as np

from keras_capsule_poe.data.mapping import CHUNK, map_batches, to_pixels
from keras_capsule_poe.functions.winners import winners
from keras_capsule_poe.generation.sampling import render, sample


def sample_rows(model, rows, seed, mode=None, domain=None):
    """The images of `sample`, as many rows of them as asked for.

    Where each image is of one capsule, as in the paper's Figure 2, each column shows one: a row
    is a block of J images put in the order of their capsules.

    Args:
        model: `GenerativeModel`.
        rows: int, R.
        seed: int.
        mode, domain: See `GenerativeModel.draw`.

    Returns:
        list of R arrays (columns, H, W, C), pixels in [0, 1]; the columns are the mode's.

    Raises:
        BadUse: If the mode or the domain is unknown.

    Examples:

    >>> from types import SimpleNamespace as Mode
    >>> class Mirror:
    ...     MODES = {"plain": Mode(columns=4)}
    ...
    ...     def resolve_mode(self, mode, domain):
    ...         return "plain", None
    ...
    ...     def draw(self, n, seed, mode=None, domain=None):
    ...         return {"capsules": np.zeros((n, 3, 2))}
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> [row.shape for row in sample_rows(Mirror(), rows=2, seed=0)]
    [(4, 3, 2, 1), (4, 3, 2, 1)]
    """
    mode, domain = model.resolve_mode(mode, domain)
    drawn = sample(model, rows * model.MODES[mode].columns, seed, mode, domain)
    images, capsule = (
        np.split(drawn[name], rows) if name in drawn else None for name in ("images", "capsule")
    )
    if capsule is None:
        return images
    return [row[np.argsort(of, kind="stable")] for row, of in zip(images, capsule)]


def reconstruction_rows(model, images):
    """Images and what the model makes of them.

    Args:
        model: `GenerativeModel`, or one with `reconstructions` like its own. Of one that has a
            `view`, the original is what it sees of an image.
        images: Array (N, H, W, C), uint8, or pixels in [0, 1].

    Returns:
        dict of arrays (N, H, W, C), one a row: `original`, and those of the model's
        `reconstructions` that are images, by their names.

    Examples:

    >>> class Half:
    ...     def reconstructions(self, images):
    ...         return {"half": (images / 2, images), "mean": (images[:, 0, 0], images[:, 0, 0])}
    >>> list(reconstruction_rows(Half(), np.ones((5, 4, 4, 1))))
    ['original', 'half']
    """

    def rows(batch):
        found = model.reconstructions(batch)
        view = getattr(model, "view", None)
        seen = batch if view is None else view(batch)
        shown = {name: x for name, (x, of) in found.items() if x.shape[1:] == seen.shape[1:]}
        return {"original": seen, **shown}

    # Of a few images a graph would take longer to make than to answer.
    if len(images) <= CHUNK:
        return {name: np.asarray(x) for name, x in rows(to_pixels(images)).items()}
    return map_batches(rows, images)


def image_traversal(model, image, capsule=None, steps=11, span=0.5, rows=32):
    """One capsule's dimensions, varied one at a time around the code of an image.

    Args:
        model: `GenerativeModel`.
        image: Array (1, H, W, C), uint8, or pixels in [0, 1].
        capsule: int, or `None` for the most probable one.
        steps: int, values of each dimension, evenly spaced.
        span: float, each dimension of the capsule moves by up to +-span, before the capsule
            gets its length back.
        rows: int, R, dimensions at most; of more than that those that change the image most
            between their ends, most first.

    Returns:
        list of E or R arrays (steps, H, W, C), of the codes of `traversal`; and the index of the
        capsule, and those of its dimensions.

    Examples:

    >>> class Mirror:
    ...     dim, CODES = 2, "ball"
    ...
    ...     def encode(self, images):
    ...         capsules = images[..., 0]
    ...         return {"capsules": capsules, "probabilities": capsules[..., 0]}
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> shown = np.array([[[[0.1], [0]], [[0.3], [0]]]])
    >>> images, capsule, dimensions = image_traversal(Mirror(), shown, steps=5)
    >>> len(images), images[0].shape, capsule, dimensions
    (2, (5, 2, 2, 1), 1, [0, 1])
    """
    code = map_batches(model.encode, image)
    if capsule is None:
        capsule = int(winners(code["probabilities"])[0])
    code, dimensions = code["capsules"][0], list(range(model.dim))
    if len(dimensions) > rows:
        ends = traversal(code, capsule, dimensions, 2, span, model.CODES)
        ends = render(model, ends.reshape(-1, *code.shape)).reshape(len(ends), 2, -1)
        change = np.square(ends[:, 1] - ends[:, 0]).sum(axis=-1)
        dimensions = np.argsort(-change, kind="stable")[:rows].tolist()
    codes = traversal(code, capsule, dimensions, steps, span, model.CODES)
    images = render(model, np.concatenate(codes))
    return np.split(images, len(codes)), capsule, dimensions


def traversal(code, capsule, dimensions, steps, span, inside="ball"):
    """Codes in which one capsule's dimensions vary, one at a time, around a code.

    Args:
        code: Array (J, E).
        capsule: int.
        dimensions: Sequence of R ints, which of the E dimensions.
        steps, span: See `image_traversal`.
        inside: `"ball"` or `"cube"`, see `GenerativeModel.CODES`; or `"alone"`.

    Returns:
        Array (R, steps, J, E). In a ball the capsule turns along a great circle towards the
        dimension and away from it, and keeps its length, the probability that it is on; one of a
        single dimension cannot turn, and stops just below a length of one. In a cube, a dimension
        stops at zero and at one. Alone, the capsule's numbers are moved as they are, and all
        other capsules are zero.

    Examples:

    >>> code = np.array([[0.3, 0.0]])
    >>> np.round(traversal(code, 0, [1], steps=3, span=0.4)[0, :, 0], 2).tolist()
    [[0.18, -0.24], [0.3, 0.0], [0.18, 0.24]]
    """
    codes = np.tile(code, (len(dimensions), steps, 1, 1))
    for row, dimension in zip(codes, dimensions):
        row[:, capsule, dimension] += np.linspace(-span, span, steps, dtype="float32")
    if inside == "alone":
        return codes * (np.arange(len(code)) == capsule)[:, None].astype(codes.dtype)
    if inside == "cube":
        return np.clip(codes, 0, 1)
    lengths = np.linalg.norm(codes[:, :, capsule], axis=-1, keepdims=True)
    kept = np.minimum(lengths, 0.999) if codes.shape[-1] == 1 else np.linalg.norm(code[capsule])
    codes[:, :, capsule] *= kept / np.maximum(lengths, 1e-12)
    return codes
