"""A model as a folder for a model hub: the Keras file, its exports, pictures and a model card."""

import os
import shutil
from pathlib import Path

from keras_capsule_poe.cards import check_replaceable, model_card, write_card
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.portable import FORMATS, export_portable
from keras_capsule_poe.serving import export_saved_model

# Files that Git keeps outside of its history.
_LARGE = ("*.keras", "*.onnx", "*.tflite", "*.pb", "*.png", "saved_model/1/variables/*")


def export_keras(model, folder, card, pictures=()):
    """Write `folder/keras` with `model.keras` and a model card, and return its path.

    Args:
        model: Trained model with `ENDPOINTS`.
        folder: Path of a folder. An earlier `folder/keras` is replaced if nobody changed it.
        card: Dict, further values of the model card.
        pictures: Paths of PNG files for the model card.

    Raises:
        BadUse: If `folder/keras` holds other files.
    """
    target = Path(folder) / "keras"
    check_replaceable(target)
    with atomic_write(target) as temporary:
        temporary.mkdir()
        model.save(temporary / "model.keras")
        whole = {**model_card(model), **card, "format": "keras"}
        write_card(temporary, whole, pictures, target)
    return target


def export_hub(model, folder, card, options=None, pictures=()):
    """Write a folder that can be pushed to a model hub as it is.

    It has `model.keras`, a SavedModel, the ONNX files if their packages are installed, the LiteRT
    files, pictures and a `README.md` with front matter. Names of folders are left out of the
    settings in it.

    Args:
        model: Trained model with `ENDPOINTS`.
        folder: Path of the folder. An earlier one is replaced if nobody changed it; its `.git`
            stays.
        card: Dict, further values of the model cards.
        options: Dict of arguments of the endpoints; or None.
        pictures: Paths of PNG files for the model card.

    Returns:
        Path of the folder, and a dict of reasons by what it lacks.

    Raises:
        BadUse: If the folder holds other files.
    """
    folder, card, left_out = Path(folder), without_places(card), {}
    check_replaceable(folder)
    with atomic_write(folder) as temporary:
        temporary.mkdir()
        forms = ["keras", "tensorflow"]
        _save_without_places(model, temporary / "model.keras")
        export_saved_model(model, temporary / "saved_model", card, options, version=1)
        for kind in FORMATS:
            try:
                _, found = export_portable(model, temporary, kind, card, options)
            except BadUse as error:
                left_out[kind] = str(error)
                continue
            forms.append(kind)
            left_out |= {f"{kind}/{name}": why for name, why in found.items()}
        attributes = (f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in _LARGE)
        (temporary / ".gitattributes").write_text("".join(attributes), "utf-8")
        if (folder / ".git").exists():
            shutil.copytree(folder / ".git", temporary / ".git", symlinks=True)
        whole = {**model_card(model), **card, "format": "hub", "forms": forms}
        write_card(temporary, whole, pictures, folder)
    return folder, left_out


def without_places(values):
    """Return values of a card in which absolute paths are the names of their last parts.

    >>> without_places({"dataset": "/home/me/cats", "limits": [1, 2], "seed": 0})
    {'dataset': 'cats', 'limits': [1, 2], 'seed': 0}
    """
    if isinstance(values, dict):
        return {name: without_places(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [without_places(value) for value in values]
    is_place = isinstance(values, str) and os.path.isabs(values)
    return Path(values).name if is_place else values


def _save_without_places(model, path):
    """Save a model whose settings hold no path of this machine."""
    settings = getattr(model, "settings", None)
    if settings is None:
        return model.save(path)
    try:
        model.settings = settings.model_copy(deep=True)
        for name, value in settings.to_dict().items():
            if isinstance(value, str) and without_places(value) != value:
                model.settings.set(name, without_places(value))
        model.save(path)
    finally:
        model.settings = settings
