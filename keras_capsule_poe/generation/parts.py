"""What overlaps in an image, pulled apart: each of its longest capsules decoded on its own."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.winners import longest, winners
from keras_capsule_poe.generation.sampling import render


def parts(model, images, n=2, labels=None):
    """The images that a classifier makes of the longest capsules, each alone.

    Args:
        model: `CapsuleClassifier` with a decoder, such as `CapsNet`.
        images: Array (N, H, W, C), uint8, or pixels in [0, 1].
        n: int, T, how many capsules of each image.
        labels: Integer array (N, T), which puts capsules in its order, see `in_order_of`; or
            None: longest first.

    Returns:
        (classes, images): integer array (N, T), and pixels (N, T, H, W, C).

    Raises:
        BadUse: If the model has fewer capsules than that.

    Examples:

    >>> class Mirror:
    ...     def encode(self, images):
    ...         capsules = images[..., 0]
    ...         return {"capsules": capsules, "probabilities": capsules[..., 0]}
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> image = np.array([[[[0.1]], [[0.3]], [[0.2]]]])
    >>> classes, images = parts(Mirror(), image)
    >>> classes.tolist(), images[0, 0, :, 0, 0].tolist()
    ([[1, 2]], [0.0, 0.3, 0.0])

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), section 6
    """
    code = map_batches(model.encode, images)
    capsules, lengths = code["capsules"], code["probabilities"]
    if n > lengths.shape[1]:
        raise BadUse(f"There are {lengths.shape[1]} capsules to be decoded. Received: n={n}")
    classes = longest(lengths, n)
    if labels is not None:
        classes = in_order_of(labels, classes)
    return classes, _alone(model, capsules, classes)


def in_order_of(labels, classes):
    """Classes in the order of the labels: those that are one in its place, the others between.

    Args:
        labels, classes: Integer arrays (N, T), of T different ones an image.

    Returns:
        Integer array (N, T), each row of `classes` rearranged.

    Examples:

    >>> in_order_of(np.array([[3, 8], [3, 8]]), np.array([[8, 3], [5, 3]])).tolist()
    [[3, 8], [3, 5]]
    """
    ordered = np.empty_like(classes)
    for row, wanted, found in zip(ordered, labels.tolist(), classes.tolist()):
        others = iter([name for name in found if name not in wanted])
        row[:] = [name if name in found else next(others) for name in wanted]
    return ordered


def part_rows(model, images, labels, targets=None):
    """Images, and beneath them each of their longest capsules decoded, beside the true parts.

    Args:
        model, images: See `parts`.
        labels: Integer array (N, T).
        targets: Array (N, T, H, W, C), each part alone; or None.

    Returns:
        (classes, rows): integer array (N, T), in the order of the labels as far as they are
        these; and a dict of arrays (N, H, W, C), one a row: `original`, `capsule_1`, `target_1`
        and so on. Of a model with a `view`, what is not decoded is what it sees of an image.

    Examples:

    >>> class Blank:
    ...     def encode(self, images):
    ...         return {"capsules": images[:, :3, :2, 0], "probabilities": images[:, :3, 0, 0]}
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> images = np.zeros((4, 8, 8, 1))
    >>> targets = np.zeros((4, 2, 8, 8, 1))
    >>> classes, rows = part_rows(Blank(), images, np.array([[2, 1]] * 4), targets)
    >>> classes[0].tolist(), list(rows)
    ([0, 1], ['original', 'capsule_1', 'target_1', 'capsule_2', 'target_2'])
    """
    classes, found = parts(model, images, labels.shape[1], labels)
    rows = {"original": _seen(model, images)}
    for part in range(labels.shape[1]):
        rows[f"capsule_{part + 1}"] = found[:, part]
        if targets is not None:
            rows[f"target_{part + 1}"] = _seen(model, targets[:, part])
    return classes, rows


def named_rows(model, images):
    """Labelled images, and beneath them what the capsules that name them decode to.

    Args:
        model: See `parts`.
        images: `ImageSet` with labels (N,), or (N, T): then the rows are those of `part_rows`.

    Returns:
        (classes, rows): integer array like the labels, what the images are taken for; and a dict
        of arrays (N, H, W, C), one a row: `original`, `longest_capsule` and, if an image is taken
        for another class, `capsule_of_the_label`.

    Examples:

    >>> from keras_capsule_poe.data import ImageSet
    >>> class Mirror:
    ...     def encode(self, images):
    ...         return {"capsules": images[..., 0], "probabilities": images[:, :, 0, 0]}
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> images = ImageSet(np.zeros((2, 3, 2, 1), "uint8"), np.array([0, 2]))
    >>> classes, rows = named_rows(Mirror(), images)
    >>> classes.tolist(), list(rows)
    ([0, 0], ['original', 'longest_capsule', 'capsule_of_the_label'])

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Figure 3
    """
    labels = images.labels
    if labels.ndim > 1:
        return part_rows(model, images.images, labels, images.extras.get("targets"))
    code = map_batches(model.encode, images.images)
    classes = winners(code["probabilities"])
    rows = {
        "original": _seen(model, images.images),
        "longest_capsule": _alone(model, code["capsules"], classes[:, None])[:, 0],
    }
    if (classes != labels).any():
        rows["capsule_of_the_label"] = _alone(model, code["capsules"], labels[:, None])[:, 0]
    return classes, rows


def as_words(labels, classes):
    """Labels and what images are taken for, an image each: `"4"`, or `"5 as 3"` if that differs.

    Args:
        labels, classes: Integer arrays (N,); or (N, T), of several: `"3+8 as 3+5"`.

    Examples:

    >>> as_words(np.array([4, 5]), np.array([4, 3]))
    ['4', '5 as 3']
    """
    words = []
    for label, named in zip(labels, classes):
        label, named = ("+".join(map(str, np.ravel(each))) for each in (label, named))
        words.append(label if label == named else f"{label} as {named}")
    return words


def segmented(model, images, labels=None, targets=None):
    """Images of two things, and beneath them the one decoded in red and the other in green.

    Args:
        model, images: See `parts`.
        labels: Integer array (N, 2), red and green, as far as they are named; or None: red is
            the most probable one.
        targets: Array (N, 2, H, W, C), each thing alone; or None.

    Returns:
        (classes, rows): integer array (N, 2), red and green; and a dict of arrays (N, H, W, 3),
        one a row: `original`, `decoded`, and with targets `targets`; see `part_rows`.

    Examples:

    >>> class Blank:
    ...     def encode(self, images):
    ...         return {"capsules": images[:, :3, :2, 0], "probabilities": images[:, :3, 0, 0]}
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> classes, rows = segmented(Blank(), np.zeros((4, 8, 8, 1)))
    >>> classes[0].tolist(), rows["decoded"].shape
    ([0, 1], (4, 3, 2, 3))

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Figure 5
    """
    classes, found = parts(model, images, 2, labels)
    grey = _seen(model, images).mean(axis=-1, keepdims=True)
    rows = {"original": grey.repeat(3, axis=-1), "decoded": in_colour(found)}
    if targets is not None:
        seen = [_seen(model, targets[:, part]) for part in range(2)]
        rows["targets"] = in_colour(np.stack(seen, axis=1))
    return classes, rows


def in_colour(pairs):
    """Two images of each pair in one, the first in red and the second in green.

    Args:
        pairs: Array (N, 2, H, W, C), pixels in [0, 1]; of several channels their mean is shown.

    Returns:
        float32 array (N, H, W, 3); where both are bright it is yellow.

    Examples:

    >>> in_colour(np.array([1.0, 0.5]).reshape(1, 2, 1, 1, 1)).ravel().tolist()
    [1.0, 0.5, 0.0]
    """
    grey = pairs.mean(axis=-1)
    return np.stack([grey[:, 0], grey[:, 1], np.zeros_like(grey[:, 0])], axis=-1).astype("float32")


def _alone(model, capsules, classes):
    """Images (N, T, H, W, C) of those capsules of (N, J, E) that (N, T) names, each alone."""
    alone = np.arange(capsules.shape[1]) == classes[..., None]
    codes = capsules[:, None] * alone[..., None].astype(capsules.dtype)
    shown = render(model, codes.reshape(-1, *capsules.shape[1:]))
    return shown.reshape(*classes.shape, *shown.shape[1:])


def _seen(model, images):
    """Pixels of images, or of the windows of them that a model sees."""
    view = getattr(model, "view", None)
    return to_pixels(images) if view is None else map_batches(view, images)
