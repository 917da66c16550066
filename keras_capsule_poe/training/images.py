"""The images that a configuration names."""


def load_data(config, data_dir=None, manual_dir=None, store=None, report=None):
    """The `ImageData` of a `RunConfig`, split by viewpoints and its held-out images set apart.

    Args:
        config: `RunConfig`.
        data_dir, manual_dir, store, report: See `load_images`.

    Raises:
        DataError: If the data cannot be found or used.

    Examples:

    >>> from keras_capsule_poe.families import get
    >>> from keras_capsule_poe.training import RunConfig
    >>> load_data(RunConfig(get("capsules"), dataset="digits", limit=50)).train.images.shape
    (48, 28, 28, 1)
    """
    from keras_capsule_poe.data import load_images, split_views

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
        seed=config.seed,
    )
    return watched(data if config.split is None else split_views(data, config.split), config)


def changed(data, config, fingerprints):
    """What of some images is not as it was when a run was trained on them.

    Args:
        data: `ImageData`.
        config: `RunConfig`.
        fingerprints: dict, `ImageData.fingerprints` of the run's, or None where it has none yet;
            those of older versions say nothing of labels.

    Returns:
        `"images"`; or `"labels"`, where the model is trained on these; or `None`.

    Examples:

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


def check(data, config, stages):
    """Whether stages can be trained on images.

    Args:
        data: `ImageData`.
        config: `RunConfig`.
        stages: Sequence of `Stage`.

    Raises:
        DataError, ConfigError: If one cannot.
    """
    config.check(data.image_shape)
    for stage in stages:
        stage.fits(config, data)


def watched(data, config):
    """Images with those set apart that training is watched on, as a `RunConfig` asks.

    Args:
        data: `ImageData`, whose own `held_out` stay where it has some.
        config: `RunConfig`.

    Raises:
        DataError: If no image would be left to train on.
    """
    return data if data.held_out is not None else data.hold_out(config.held_out)
