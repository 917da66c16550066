"""Separation of overlapping objects: the longest capsules, each decoded on its own."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.winners import longest, winners
from keras_capsule_poe.generation.sampling import render


def parts(model, images, n=2, labels=None):
    """Return classes (N, T) and decoded images (N, T, H, W, C) of the `n` longest capsules."""
    code = map_batches(model.encode, images)
    capsules, lengths = code["capsules"], code["probabilities"]
    if n > lengths.shape[1]:
        raise BadUse(f"There are {lengths.shape[1]} capsules to be decoded. Received: n={n}")
    classes = longest(lengths, n)
    if labels is not None:
        classes = in_order_of(labels, classes)
    return classes, _alone(model, capsules, classes)


def in_order_of(labels, classes):
    """Reorder classes (N, T) so that each one in `labels` (N, T) stands in its label's place."""
    ordered = np.empty_like(classes)
    for row, wanted, found in zip(ordered, labels.tolist(), classes.tolist()):
        others = iter([name for name in found if name not in wanted])
        row[:] = [name if name in found else next(others) for name in wanted]
    return ordered


def part_rows(model, images, labels, targets=None):
    """Return classes (N, T) and rows of images: original, decoded parts and their targets."""
    classes, found = parts(model, images, labels.shape[1], labels)
    rows = {"original": _seen(model, images)}
    for part in range(labels.shape[1]):
        rows[f"capsule_{part + 1}"] = found[:, part]
        if targets is not None:
            rows[f"target_{part + 1}"] = _seen(model, targets[:, part])
    return classes, rows


def named_rows(model, images):
    """Return predictions and rows of images: original, longest capsule, capsule of the label."""
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
    """Return one caption per image: "4", or "5 as 3" if label and prediction differ."""
    words = []
    for label, named in zip(labels, classes):
        label, named = ("+".join(map(str, np.ravel(each))) for each in (label, named))
        words.append(label if label == named else f"{label} as {named}")
    return words


def segmented(model, images, labels=None, targets=None):
    """Return classes (N, 2) and rows of images: original, parts in red and green, targets."""
    classes, found = parts(model, images, 2, labels)
    grey = _seen(model, images).mean(axis=-1, keepdims=True)
    rows = {"original": grey.repeat(3, axis=-1), "decoded": in_colour(found)}
    if targets is not None:
        seen = [_seen(model, targets[:, part]) for part in range(2)]
        rows["targets"] = in_colour(np.stack(seen, axis=1))
    return classes, rows


def in_colour(pairs):
    """Return RGB images (N, H, W, 3) of pairs (N, 2, H, W, C), first in red, second in green."""
    grey = pairs.mean(axis=-1)
    return np.stack([grey[:, 0], grey[:, 1], np.zeros_like(grey[:, 0])], axis=-1).astype("float32")


def _alone(model, capsules, classes):
    """Return images (N, T, H, W, C) of the capsules `classes` (N, T), each decoded alone."""
    alone = np.arange(capsules.shape[1]) == classes[..., None]
    codes = capsules[:, None] * alone[..., None].astype(capsules.dtype)
    shown = render(model, codes.reshape(-1, *capsules.shape[1:]))
    return shown.reshape(*classes.shape, *shown.shape[1:])


def _seen(model, images):
    """Return the pixels of images, or of the window that the model sees."""
    view = getattr(model, "view", None)
    return to_pixels(images) if view is None else map_batches(view, images)
