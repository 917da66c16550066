"""Rows of images: samples, reconstructions and traversals of capsule dimensions."""

import numpy as np

from keras_capsule_poe.data.mapping import CHUNK, map_batches, to_pixels
from keras_capsule_poe.functions.winners import winners
from keras_capsule_poe.generation.sampling import render, sample


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
