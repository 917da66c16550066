"""Training and loading in one line: `train`, `load`."""

import os
from pathlib import Path
from typing import Any

from keras_capsule_poe.errors import BadUse, RunFailed

__all__ = ["load", "train"]


def train(
    dataset: Any,
    *,
    model: str = "capsules",
    recipe: str | None = None,
    folder: str | Path | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    callbacks: Any = (),
    **settings: Any,
) -> Any:
    """Train a model on a data set, as `capspoe train`.

    Args:
        dataset: `"digits"`, a tensorflow-datasets name, a folder of images, an `.npz` file (see
            `data.load_images`), an array of images, or a `tf.data.Dataset`.
        model: String, a model family: `"capsules"`, `"neurons"`, `"rbm"`, `"capsnet"` or
            `"matrix-capsules"`.
        recipe: String, a named set of settings of the family. None: the first one.
        folder: Path of a model folder for checkpoints, pictures, the Keras file and the SavedModel.
            The same call resumes an interrupted training. None: nothing is kept on disk.
        epochs, batch_size: int, of every stage. None: as the recipe says.
        verbose: `0` silent, `1` one line of progress, `2` one line per epoch, or `"auto"`.
        callbacks: List of Keras callbacks. Each stage calls them with its own model.
        **settings: Settings by name, such as `seed=1`, `limit=5000` or `encoder={"epochs": 5}`;
            also `data_dir`, `manual_dir` and `store` of `data.load_images`.

    Returns:
        The trained model, for instance a `ProductOfExpertCapsules`.

    Raises:
        DataError: If the images cannot be found or used.
        ConfigError: If a setting does not exist or has a wrong value.
        RunFailed: If training diverges, or the folder belongs to another training.

    Example:

    >>> model = train("digits", model="rbm", hidden=20, epochs=2, verbose=0)
    >>> model.sample(4)
    Samples(images: (4, 28, 28, 1), capsules: (4, 1, 20))
    """
    from keras_capsule_poe import families
    from keras_capsule_poe.data.arrays import image_data
    from keras_capsule_poe.models.base.staged import run_config, train_model
    from keras_capsule_poe.training import load_data

    places = {k: settings.pop(k) for k in ("data_dir", "manual_dir", "store") if k in settings}
    config = run_config(
        families.get(model), recipe, settings, {"epochs": epochs, "batch_size": batch_size}
    )
    if isinstance(dataset, (str, os.PathLike)):
        config.set("dataset", os.fspath(dataset))
        config.suit()

        def images():
            return load_data(config, **places)
    else:
        data = image_data(*(dataset if isinstance(dataset, tuple) else (dataset,)))
        config.set("dataset", data.name)

        def images():
            return data

    return train_model(config, images, folder, verbose, callbacks)[0]


def load(path: str | Path) -> Any:
    """Load a trained model.

    Args:
        path: Model folder, or `.keras` file.

    Returns:
        The trained model, for instance a `ProductOfExpertCapsules`.

    Raises:
        BadUse: If there is no such model.
        RunFailed: If the file cannot be loaded.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = keras_capsule_poe.train(
    ...     "digits", model="rbm", hidden=5, epochs=1, verbose=0, folder=f"{folder}/rbm"
    ... )
    >>> load(f"{folder}/rbm").sample(2)
    Samples(images: (2, 28, 28, 1), capsules: (2, 1, 5))
    """
    import keras

    import keras_capsule_poe

    found = Path(path).expanduser()
    file = found / "model.keras" if found.is_dir() else found
    if not file.is_file():
        raise BadUse(
            "`path` must be a model folder or a .keras file. "
            f"Received: {os.fspath(path)!r}, and there is no file {file}."
        )
    # Importing them registers the classes with Keras.
    keras_capsule_poe.import_all()
    try:
        return keras.models.load_model(file, compile=False)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RunFailed(f"Cannot load {file} ({reason}).") from error
