"""Trained models in one line: `train`, `load`, and those that come with the package."""

import contextlib
import importlib.util
import json
import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from keras_capsule_poe.errors import BadUse, CapspoeError, RunFailed, meant
from keras_capsule_poe.io.atomic import user_path
from keras_capsule_poe.io.records import has_record

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keras_capsule_poe import _keywords as words

__all__ = ["load", "pretrained_names", "train"]
# Backends of Keras on which whole models work.
BACKENDS = ("tensorflow", "jax")


@overload
def train(
    dataset: Any,
    *,
    model: Literal["capsules"] = ...,
    **settings: "Unpack[words.ProductOfExpertCapsulesTraining]",
) -> "words.ProductOfExpertCapsules": ...
@overload
def train(
    dataset: Any,
    *,
    model: Literal["neurons"],
    **settings: "Unpack[words.ProductOfExpertNeuronsTraining]",
) -> "words.ProductOfExpertNeurons": ...
@overload
def train(
    dataset: Any,
    *,
    model: Literal["rbm"],
    **settings: "Unpack[words.ImageBoltzmannMachineTraining]",
) -> "words.ImageBoltzmannMachine": ...
@overload
def train(
    dataset: Any, *, model: Literal["capsnet"], **settings: "Unpack[words.CapsNetTraining]"
) -> "words.CapsNet": ...
@overload
def train(
    dataset: Any,
    *,
    model: Literal["matrix-capsules"],
    **settings: "Unpack[words.MatrixCapsNetTraining]",
) -> "words.MatrixCapsNet": ...
@overload
def train(dataset: Any, *, model: type[Any], **settings: Any) -> Any: ...


# The arguments that it names are in the dicts of keywords, which mypy does not look into here.
def train(  # type: ignore[misc]
    dataset: Any,
    *,
    model: str | type[Any] = "capsules",
    preset: str | None = None,
    folder: str | Path | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    callbacks: Any = (),
    **settings: Any,
) -> Any:
    """Train a model on a data set, as `capspoe train`.

    Args:
        dataset: `"digits"`, a tensorflow-datasets name, a folder or file of images, or an object of
            the package `datasets` (see `data.load_images`); an array of images, a pair
            (images, labels), or a stream, see `ProductOfExpertCapsules.fit`.
        model: String, a model: `"capsules"`, `"neurons"`, `"rbm"`, `"capsnet"` or
            `"matrix-capsules"`; or the class of a model.
        preset: String, a named set of settings of the model, also called `recipe`. None: the first.
        folder: Path of a model folder for checkpoints, pictures, the Keras file and the SavedModel.
            The same call resumes an interrupted training. None: nothing is kept on disk.
        epochs, batch_size: int, of every part. None: as the preset says.
        verbose: `0` silent, `1` one line of progress, `2` one line per epoch, or `"auto"`.
        callbacks: List of Keras callbacks. Each part calls them with its own model.
        **settings: Settings by name, such as `seed=1`, `limit=5000` or `encoder={"epochs": 5}`;
            also `data_dir`, `manual_dir` and `store` of `data.load_images`. With arrays, `groups`
            is an array (N,), see `ProductOfExpertCapsules.fit`, and of the options of data only
            `limit`, `held_out`, `image_size` and `grey` are allowed.

    Returns:
        The trained model, for instance a `ProductOfExpertCapsules`. Its `history` is what `fit`
        returns: a dict of `keras.callbacks.History` by stage.

    Raises:
        DataError: If the images cannot be found or used.
        ConfigError: If a setting does not exist or has a wrong value.
        RunFailed: If training diverges, or the folder belongs to another training.

    Example:

    >>> model = train("digits", model="rbm", hidden=20, epochs=2, verbose=0)
    >>> model.sample(4)
    Samples(images: (4, 28, 28, 1), capsules: (4, 1, 20))
    >>> len(model.history["rbm"].history["loss"])
    2
    """
    from keras_capsule_poe import registry
    from keras_capsule_poe.data.arrays import image_data
    from keras_capsule_poe.data.hub import is_hub
    from keras_capsule_poe.data.image_set import ImageData
    from keras_capsule_poe.models.base.fitting import trained_model
    from keras_capsule_poe.training import load_data

    places = {k: settings.pop(k) for k in ("data_dir", "manual_dir", "store") if k in settings}
    is_named = isinstance(dataset, (str, os.PathLike))
    is_loaded = is_named or is_hub(dataset)
    groups = None if is_loaded else settings.pop("groups", None)
    kind = model if isinstance(model, type) else registry.model_class(model)
    untrained = kind.of(kind.SETTINGS(preset or settings.pop("recipe", None), **settings))
    found = untrained.settings
    found.set_all(epochs=epochs, batch_size=batch_size)
    if is_loaded:
        found.set("dataset", os.fspath(dataset) if is_named else "x")
        found.suit()

        def images():
            return load_data(found, **places, dataset=dataset)
    else:
        given = dataset if isinstance(dataset, tuple) else (dataset,)
        applied = () if isinstance(dataset, ImageData) else ("limit", "held_out", "grey")
        if places:
            raise BadUse(
                f"`{next(iter(places))}` is for named data sets and files. Received: images in "
                "memory."
            )
        found.take_images(getattr(dataset, "name", "x"), ("image_size", *applied))

        def images():
            options = {name: getattr(found, name) for name in applied}
            options["data_version"] = found.data_version
            return image_data(*given, groups=groups, **options)

    return trained_model(untrained, images, folder, verbose, callbacks)


@overload
def load(
    path: Literal["mnist", "fashion_mnist"], sha256: None = ...
) -> "words.ProductOfExpertCapsules": ...
@overload
def load(path: str | Path, sha256: str | None = ...) -> Any: ...


def load(path: str | Path, sha256: str | None = None) -> Any:
    """Load a trained model.

    Args:
        path: A model folder, a `.keras` file, or the name of a model that comes with the package:
            `"mnist"` or `"fashion_mnist"`. A folder with such a name is `./mnist`. The URL of a
            `.keras` file is downloaded and kept in Keras' cache. Other formats, such as HDF5, are
            refused, since reading them can run code.
        sha256: String, the SHA-256 of the file behind a URL, in hexadecimal. Required for a URL.

    Returns:
        The trained model, for instance a `ProductOfExpertCapsules`.

    Raises:
        BadUse: If there is no such model, or a URL comes without `sha256`.
        RunFailed: If the file cannot be downloaded or loaded, is another one, or its weights are
            not finite.

    Example:

    >>> model = load("mnist")
    >>> model.sample(4, capsule=7)
    Samples(images: (4, 28, 28, 1), capsules: (4, 20, 16), index: (4,))
    """
    import keras

    import keras_capsule_poe
    from keras_capsule_poe import registry

    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise BadUse(f"`path` must be a name or a path. Received: path={path!r}")
    if "://" in str(path):
        file = _download(str(path), sha256)
    else:
        found = pretrained_folder(path) or user_path(path)
        file = found / "model.keras" if found.is_dir() else found
    if not file.is_file():
        listed = ", ".join(map(repr, pretrained_names()))
        raise BadUse(
            f"`path` must be one of {listed}, a model folder, a .keras file or a URL. "
            f"Received: {os.fspath(path)!r}, and there is no file {file}."
            + meant(os.fspath(path), pretrained_names())
        )
    if file.suffix != ".keras":
        # Keras takes other endings for formats that can run code.
        raise BadUse(
            f"`path` must be a model folder or a .keras file. Received: {file}. "
            "`model.save('model.keras')` writes one."
        )
    if not zipfile.is_zipfile(file):
        raise RunFailed(f"Cannot load {file} (it is damaged, or another format: no zip archive).")
    # Importing them registers the classes with Keras, also those of other packages.
    keras_capsule_poe.import_all()
    for name in registry.names():
        registry.model_class(name)
    try:
        model = keras.models.load_model(file, compile=False)
    except Exception as error:
        hint = _version_of(file)
        if keras.backend.backend() not in BACKENDS:
            hint += (
                " PyTorch can use layers, not whole models: set KERAS_BACKEND=tensorflow or jax."
            )
        raise RunFailed(f"Cannot load {file} ({_reason(error)}).{hint}") from error
    _check_weights(model, file)
    if file.name == "model.keras":
        _know_run(model, file.parent)
    return model


def _reason(error):
    """Return the text of an error in one line, without the configurations that Keras puts in."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.rpartition("Exception encountered: ")[2].rstrip(".")


def _version_of(file):
    """Return a sentence on the version of Keras that wrote a file, if it is another one."""
    import keras

    written, here = "unknown", keras.__version__
    # The file may be damaged.
    with contextlib.suppress(Exception), zipfile.ZipFile(file) as archive:
        written = json.loads(archive.read("metadata.json"))["keras_version"]
    return "" if written in (here, "unknown") else f" Keras {written} wrote it, this is {here}."


def _check_weights(model, file):
    """Raise `RunFailed` if a weight of a loaded model is not finite."""
    import keras
    import numpy as np

    for weight in model.weights:
        if weight.dtype.startswith(("float", "bfloat")):
            values = np.asarray(keras.ops.convert_to_numpy(weight), "float32")
            if not np.isfinite(values).all():
                raise RunFailed(
                    f"{file} holds a model whose training diverged, or is damaged: its weight "
                    f"{weight.path} must have finite values. Received: NaN or infinity."
                )


def _know_run(model, folder):
    """Tell a model its settings and its images, as its folder says, if its file does not."""
    from keras_capsule_poe.models.base.new_images import know_images
    from keras_capsule_poe.training import RunFolder

    knows = getattr(model, "knows_images", True), getattr(model, "has_settings", True)
    if all(knows) or not has_record(folder / "run.json"):
        return
    # Whoever needs the folder itself learns that it is damaged.
    with contextlib.suppress(CapspoeError):
        run = RunFolder(folder)
        if not knows[0]:
            know_images(model, run)
        if not knows[1]:
            model.settings = model.SETTINGS.from_dict(run.readable()["config"])
            model.has_settings = True


def pretrained_names() -> list[str]:
    """Return the names of the models that come with the package.

    Example:

    >>> pretrained_names()
    ['fashion_mnist', 'mnist']
    """
    return sorted(file.parent.name for file in _place().glob("*/model.keras"))


def pretrained_folder(name):
    """Return the folder of a pretrained model, or None if there is none of this name."""
    is_name = isinstance(name, (str, Path)) and str(name) in pretrained_names()
    return _place() / str(name) if is_name else None


def is_pretrained(folder):
    """Return whether a model folder is one that comes with the package."""
    return Path(folder).resolve().parent == Path(_place()).resolve()


def _place():
    spec = importlib.util.find_spec("keras_capsule_poe.saved_models")
    return Path(spec.origin).parent if spec and spec.origin else Path("nowhere")


def _download(url, sha256):
    """Return the path of a file from a URL, after a check of its sum."""
    import keras

    if not (isinstance(sha256, str) and re.fullmatch("[0-9a-fA-F]{64}", sha256)):
        raise BadUse(f"`sha256` must be 64 hexadecimal digits for a URL. Received: {sha256!r}.")
    name = f"{sha256.lower()[:16]}.keras"
    options = {"cache_subdir": "keras_capsule_poe", "hash_algorithm": "sha256"}
    try:
        found = keras.utils.get_file(name, url, file_hash=sha256.lower(), **options)
    except Exception as error:
        raise RunFailed(f"Cannot download {url} ({_reason(error)}).") from error
    return Path(found)
