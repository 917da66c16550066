"""Images that a configuration names."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_capsule_poe.errors import counted

if TYPE_CHECKING:
    from keras_capsule_poe.data.image_set import ImageData
    from keras_capsule_poe.training.settings import Settings

# Settings that are arguments of `load_images`.
_OPTIONS = (
    *("column", "image_size", "grey", "limit", "skip_broken", "train_dir", "test_dir", "seed"),
    *("background", "max_value", "groups", "labels", "label_column", "data_version"),
)
# Number of pixels above which training takes long.
_LARGE = 128 * 128
# The largest class has so many times the images of the smallest: classes that are worth a line.
_UNBALANCED = 1.5


def load_data(
    settings: "Settings",
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    store: str | Path | None = None,
    report: Callable[[str], Any] | None = None,
    dataset: Any = None,
) -> "ImageData":
    """Return the `ImageData` of a configuration, with its split and its held-out images.

    Args:
        settings: `Settings`.
        data_dir, manual_dir, store, report: See `load_images`.
        dataset: See `load_images`. None: the one that the settings name.

    Returns:
        `ImageData`.

    Raises:
        DataError: If the data cannot be found or used.

    Example:

    >>> from keras_capsule_poe import registry
    >>> load_data(registry.settings("capsules", dataset="digits", limit=50)).train.images.shape
    (48, 28, 28, 1)
    """
    from keras_capsule_poe.data import load_images, split_views
    from keras_capsule_poe.data.image_set import HELD_OUT

    data = load_images(
        settings.dataset if dataset is None else dataset,
        data_dir=data_dir,
        manual_dir=manual_dir,
        store=store,
        report=report,
        **{name: getattr(settings, name) for name in _OPTIONS},
    )
    if data.held_out is not None:
        # The folder's own validation images. They are measured after each epoch.
        few, every = data.held_out.head(settings.held_out or HELD_OUT), len(data.held_out)
        left = f"Left out: {every - len(few):,} of {every:,} validation images, see `held_out`."
        notes = (*data.notes, left) if len(few) < every else data.notes
        data = dataclasses.replace(data, held_out=few, notes=notes)
    return watched(data if settings.split is None else split_views(data, settings.split), settings)


def changed(
    data: "ImageData", settings: "Settings", fingerprints: dict[str, Any] | None
) -> str | None:
    """Return which part of the data differs from the data of a run.

    Args:
        data: `ImageData`.
        settings: `Settings`.
        fingerprints: dict, the run's `ImageData.fingerprints`, or None. Missing entries, such as
            labels in runs of older versions, count as equal.

    Returns:
        `"images"`; `"labels"` if only these differ and the model is trained on them; or None.

    Example:

    >>> from types import SimpleNamespace as Data
    >>> settings = Data(LABELLED=True)
    >>> now = Data(fingerprints={"train": "a", "train_labels": "c"})
    >>> changed(now, settings, {"train": "a", "train_labels": "b"})
    'labels'
    """
    known, found = fingerprints or {}, data.fingerprints
    others = [name for name, value in found.items() if known.get(name, value) != value]
    if any(not name.endswith("_labels") for name in others):
        return "images"
    return "labels" if others and settings.LABELLED else None


def described(data):
    """Return lines on the data that a user should see before training."""
    from keras_capsule_poe.data.image_set import ImageSet, equal_images
    from keras_capsule_poe.data.pixels import check_contrast
    from keras_capsule_poe.training.sanity import FEW

    counts = filter(None, [data.class_counts(_UNBALANCED), data.group_counts()])
    lines = [data.summary(), *counts, *data.notes]
    if data.held_out is not data.test:
        # Loading has compared the test images, and those of a folder for validation.
        more = equal_images(data.train, {"held-out": data.held_out})
        lines += [line for line in more if line not in lines]
    if isinstance(data.train, ImageSet):
        lines += check_contrast(data.train.images)
    if len(data.held_out) < FEW:
        lines.append(
            f"Only {counted(len(data.held_out), 'held-out image')}: its metrics say little. "
            "More images to train on, or a larger `held_out`, make them surer."
        )
    height, width, _ = data.image_shape
    if height * width > _LARGE:
        lines.append(
            f"Images of {height}x{width} pixels train about {height * width / 784:.0f} times as "
            "long as those of 28x28. `image_size` makes them smaller."
        )
    return lines


def facts(data, settings):
    """Return what `run.json` says of the data: their preparation, class names and place."""
    from keras_capsule_poe.data.image_set import ImageSet
    from keras_capsule_poe.data.preparation import Preparation
    from keras_capsule_poe.data.tfds import is_known

    shown = data.train if isinstance(data.train, ImageSet) else data.test
    preparation = data.preparation or Preparation(keeps_proportions=True)
    found = {"preparation": dataclasses.asdict(preparation.completed(shown.images))}
    path = Path(settings.dataset)
    if data.train.class_names:
        found["class_names"] = list(data.train.class_names)
    if path.exists() and not is_known(settings.dataset):
        # A relative path is right in one working folder only.
        found["data_path"] = os.path.abspath(path)
    paths = {name: getattr(settings, name) for name in ("labels", "train_dir", "test_dir")}
    known = {name: os.path.abspath(path) for name, path in paths.items() if path}
    found["paths"] = {name: path for name, path in known.items() if os.path.exists(path)}
    return found


def check(data, settings, stages):
    """Raise DataError or ConfigError if a stage cannot be trained on these images.

    Settings that the data determine are set.
    """
    from keras_capsule_poe.data.image_set import ImageSet
    from keras_capsule_poe.data.pixels import check_contrast

    for name, part in settings.parts.items():
        is_open = hasattr(part, "classes") and f"{name}.classes" not in settings.given
        if is_open and data.classes is not None:
            part.classes = data.classes
    settings.check(data.image_shape)
    if len(stages) > 1:
        settings.check_images(data)
    if isinstance(data.train, ImageSet):
        check_contrast(data.train.images)


def watched(data, settings):
    """Return `ImageData` of the size and with the held-out images that the `Settings` ask for."""
    data = _resized(data, settings)
    if data.held_out is not None:
        return data
    return data.hold_out(settings.held_out, in_order=settings.data_version < 3)


def _resized(data, settings):
    """Return images of the size in the settings, or enlarged if the model needs larger ones."""
    import numpy as np

    from keras_capsule_poe.data.image_set import ImageSet
    from keras_capsule_poe.data.pixels import enlarged_size, fit_images
    from keras_capsule_poe.data.preparation import Preparation

    before, least = tuple(data.image_shape[:2]), settings.smallest() or 0
    size, notes = settings.image_size or before, ()
    if settings.image_size is None and min(before) < least:
        size = enlarged_size(before, least)
        old, new = ("x".join(map(str, each)) for each in (before, size))
        notes = (
            f"Images of {old} pixels are enlarged to {new}: this model needs {least} pixels a "
            "side. `image_size` chooses another size.",
        )
    parts = {"train": data.train, "test": data.test, "held_out": data.held_out}
    is_plain = all(isinstance(each, ImageSet) for each in parts.values() if each is not None)
    # Composed images have others in them.
    if size == before or not is_plain or "targets" in data.test.extras:
        return data
    parts = {
        name: each and dataclasses.replace(each, images=fit_images(np.asarray(each.images), size))
        for name, each in parts.items()
    }
    made = data.preparation or Preparation(keeps_proportions=True)
    made = dataclasses.replace(made, resized_from=before)
    return dataclasses.replace(data, **parts, notes=(*data.notes, *notes), preparation=made)
