"""Rows of images: samples, reconstructions and traversals of capsule dimensions."""

import numpy as np

from keras_capsule_poe.core.routing import longest, winners
from keras_capsule_poe.data.mapping import CHUNK, map_batches, to_pixels
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.sampling import render, sample


def sample_rows(model, rows, seed, mode=None, domain=None):
    """Return a list of `rows` arrays (columns, H, W, C) of samples."""
    mode, domain = model.resolve_mode(mode, domain)
    drawn = sample(model, rows * model.MODES[mode].columns, seed, mode, domain)
    images, capsule = (
        np.split(drawn[name], rows) if name in drawn else None for name in ("images", "capsule")
    )
    if capsule is None:
        return images
    # Sort each row by capsule, so that a column shows one capsule.
    return [row[np.argsort(of, kind="stable")] for row, of in zip(images, capsule)]


def reconstruction_rows(model, images):
    """Return `original` and the model's reconstructions that are images, each (N, H, W, C)."""

    def rows(batch):
        found = model.reconstructions(batch)
        view = getattr(model, "view", None)
        seen = batch if view is None else view(batch)
        shown = {name: x for name, (x, of) in found.items() if x.shape[1:] == seen.shape[1:]}
        return {"original": seen, **shown}

    # Tracing a graph takes longer than running a few images eagerly.
    if len(images) <= CHUNK:
        return {name: np.asarray(x) for name, x in rows(to_pixels(images)).items()}
    return map_batches(rows, images)


def image_traversal(model, image, capsule=None, steps=11, span=0.5, rows=32):
    """Return traversals (steps, H, W, C) of an image's capsule, the capsule, its dimensions."""
    code = map_batches(model.encode, image)
    if capsule is None:
        capsule = int(winners(code["probabilities"])[0])
    code, dimensions = code["capsules"][0], list(range(model.dim))
    if len(dimensions) > rows:
        # Keep the dimensions that change the image most between their ends.
        ends = traversal(code, capsule, dimensions, 2, span, model.CODES)
        ends = render(model, ends.reshape(-1, *code.shape)).reshape(len(ends), 2, -1)
        change = np.square(ends[:, 1] - ends[:, 0]).sum(axis=-1)
        dimensions = np.argsort(-change, kind="stable")[:rows].tolist()
    codes = traversal(code, capsule, dimensions, steps, span, model.CODES)
    images = render(model, np.concatenate(codes))
    return np.split(images, len(codes)), capsule, dimensions


def traversal(code, capsule, dimensions, steps, span, inside="ball"):
    """Return codes (R, steps, J, E) that vary R dimensions of one capsule of `code` (J, E)."""
    codes = np.tile(code, (len(dimensions), steps, 1, 1))
    for row, dimension in zip(codes, dimensions):
        row[:, capsule, dimension] += np.linspace(-span, span, steps, dtype="float32")
    if inside == "alone":
        return codes * (np.arange(len(code)) == capsule)[:, None].astype(codes.dtype)
    if inside == "cube":
        return np.clip(codes, 0, 1)
    # In a ball the capsule turns and keeps its length, the probability that it is on.
    # A capsule of one dimension cannot turn, so its length only stays below one.
    lengths = np.linalg.norm(codes[:, :, capsule], axis=-1, keepdims=True)
    kept = np.minimum(lengths, 0.999) if codes.shape[-1] == 1 else np.linalg.norm(code[capsule])
    codes[:, :, capsule] *= kept / np.maximum(lengths, 1e-12)
    return codes


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
