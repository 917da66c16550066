"""Images that a configuration names."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_capsule_poe.data.image_set import ImageData
    from keras_capsule_poe.training.config import RunConfig

# Number of pixels above which training takes long.
_LARGE = 128 * 128


def load_data(
    config: "RunConfig",
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    store: str | Path | None = None,
    report: Callable[[str], Any] | None = None,
) -> "ImageData":
    """Return the `ImageData` of a configuration, with its split and its held-out images.

    Args:
        config: `RunConfig`.
        data_dir, manual_dir, store, report: See `load_images`.

    Returns:
        `ImageData`.

    Raises:
        DataError: If the data cannot be found or used.

    Example:

    >>> from keras_capsule_poe.families import get
    >>> from keras_capsule_poe.training import RunConfig
    >>> load_data(RunConfig(get("capsules"), dataset="digits", limit=50)).train.images.shape
    (48, 28, 28, 1)
    """
    from keras_capsule_poe.data import load_images, split_views
    from keras_capsule_poe.data.image_set import HELD_OUT

    data = load_images(
        config.dataset,
        data_dir=data_dir,
        manual_dir=manual_dir,
        store=store,
        report=report,
        column=config.column,
        image_size=config.image_size,
        grey=config.grey,
        limit=config.limit,
        skip_broken=config.skip_broken,
        train_dir=config.train_dir,
        test_dir=config.test_dir,
        background=config.background,
        max_value=config.max_value,
        data_version=config.data_version,
        seed=config.seed,
    )
    if data.held_out is not None:
        # The folder's own validation images. They are measured after each epoch.
        few = data.held_out.head(config.held_out or HELD_OUT)
        data = dataclasses.replace(data, held_out=few)
    return watched(data if config.split is None else split_views(data, config.split), config)


def changed(
    data: "ImageData", config: "RunConfig", fingerprints: dict[str, Any] | None
) -> str | None:
    """Return which part of the data differs from the data of a run.

    Args:
        data: `ImageData`.
        config: `RunConfig`.
        fingerprints: dict, the run's `ImageData.fingerprints`, or None. Missing entries, such as
            labels in runs of older versions, count as equal.

    Returns:
        `"images"`; `"labels"` if only these differ and the model is trained on them; or None.

    Example:

    >>> from types import SimpleNamespace as Data
    >>> config = Data(family=Data(labelled=True))
    >>> now = Data(fingerprints={"train": "a", "train_labels": "c"})
    >>> changed(now, config, {"train": "a", "train_labels": "b"})
    'labels'
    """
    known, found = fingerprints or {}, data.fingerprints
    others = [name for name, value in found.items() if known.get(name, value) != value]
    if any(not name.endswith("_labels") for name in others):
        return "images"
    return "labels" if others and config.family.labelled else None


def described(data):
    """Return lines on the data that a user should see before training."""
    from keras_capsule_poe.data.image_set import ImageSet
    from keras_capsule_poe.data.pixels import check_contrast

    lines = [data.summary(), *filter(None, [data.class_counts()]), *data.notes]
    if isinstance(data.train, ImageSet):
        lines += check_contrast(data.train.images)
    height, width, _ = data.image_shape
    if height * width > _LARGE:
        lines.append(
            f"Images of {height}x{width} pixels train about {height * width / 784:.0f} times as "
            "long as those of 28x28. `image_size` makes them smaller."
        )
    return lines


def facts(data, config):
    """Return what `run.json` says of the data: the class names and where files lie, if known."""
    from keras_capsule_poe.data.tfds import is_known

    found, path = {}, Path(config.dataset)
    if data.train.class_names:
        found["class_names"] = list(data.train.class_names)
    if path.exists() and not is_known(config.dataset):
        # A relative path is right in one working folder only.
        found["data_path"] = os.path.abspath(path)
    return found


def check(data, config, stages):
    """Raise DataError or ConfigError if a stage cannot be trained on these images.

    Settings that the data determine are set.
    """
    from keras_capsule_poe.data.image_set import ImageSet
    from keras_capsule_poe.data.pixels import check_contrast

    for name, section in config.sections.items():
        is_open = hasattr(section, "classes") and f"{name}.classes" not in config.given
        if is_open and data.classes is not None:
            section.classes = data.classes
    config.check(data.image_shape)
    for stage in stages:
        stage.fits(config, data)
    if isinstance(data.train, ImageSet):
        check_contrast(data.train.images)


def watched(data, config):
    """Return `ImageData` with held-out images, as the `RunConfig` asks if it has none yet."""
    return data if data.held_out is not None else data.hold_out(config.held_out)
