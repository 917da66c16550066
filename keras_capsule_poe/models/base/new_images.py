"""Images of files and arrays of any size, as a model's training images were prepared."""

import dataclasses
import os
import types
import warnings
from typing import Any

import numpy as np
from keras import ops

from keras_capsule_poe.data.arrays import image_array, is_dataset, read_images
from keras_capsule_poe.data.pixels import fit_images, floats_to_bytes
from keras_capsule_poe.data.preparation import Preparation, prepared_image

_KEPT = ("preparation", "class_names")


class TakesFiles:
    """Mixin for models that take image files, and that know how their images were prepared.

    It comes before `keras.Model`. A subclass sets `image_shape` (H, W, C).
    """

    @property
    def preparation(self) -> Preparation | None:
        """How files become pixels of this model; None before it is trained.

        Models of former versions have what their settings say. They invert nothing.
        """
        # The instance's dict, as of an attribute that Keras does not look at.
        return self.__dict__.get("_preparation") or _former(self)

    @preparation.setter
    def preparation(self, value: Preparation | None) -> None:
        self.__dict__["_preparation"] = value

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes of the training images, or None."""
        return self.__dict__.get("_class_names")

    @class_names.setter
    def class_names(self, value: tuple[str, ...] | None) -> None:
        self.__dict__["_class_names"] = value and tuple(value)

    @property
    def knows_images(self):
        """True if the preparation of the training images is known, not taken from settings."""
        return self.__dict__.get("_preparation") is not None

    def get_config(self):
        config, own = super().get_config(), self.__dict__.get("_preparation")
        kept = {"preparation": own and dataclasses.asdict(own), "class_names": self.class_names}
        return {**config, **{name: value for name, value in kept.items() if value}}

    @classmethod
    def from_config(cls, config, *args, **kwargs):
        config = dict(config)
        kept = {name: config.pop(name, None) for name in _KEPT}
        model = super().from_config(config, *args, **kwargs)
        if kept["preparation"]:
            model.preparation = Preparation.from_dict(kept["preparation"])
        if kept["class_names"]:
            model.class_names = kept["class_names"]
        return model

    def named(self, found, images):
        """Return a dict with `classes` (N,), and with their `names` if `images` are files."""
        if isinstance(images, (list, tuple)) or _is_file(images):
            known = self.class_names or ()
            classes = np.asarray(found["classes"]).tolist()
            if known and max(classes, default=0) < len(known):
                return {**found, "names": [known[number] for number in classes]}
        return found

    def as_pixels(self, images):
        """Return files and arrays of other sizes as uint8 (N, H, W, C), others as they are.

        Args:
            images: path or another file of `data.read_image`, or a list of files and arrays, which
                are prepared. An array of one image of the model's shape gets a batch axis. A
                dataset is read into memory.
        """
        if is_dataset(images):
            images = read_images(images)
        if isinstance(images, types.GeneratorType):
            images = list(images)
        if _is_file(images):
            images = [images]
        shape, is_list = tuple(self.image_shape), isinstance(images, (list, tuple))
        if is_list and any(_is_file(each) or _is_image(each) for each in images):
            return self._prepared(images, shape)
        if _is_image(images) and np.shape(images) in _shapes(shape):
            return np.asarray(images).reshape(1, *shape)
        return self.resized(images)

    def resized(self, images):
        """Return arrays of the size that training arrays had, resized as these were; or others."""
        size = getattr(self.preparation, "resized_from", None)
        if size is None or ops.is_tensor(images) or not hasattr(images, "dtype"):
            return images
        shape = (*size, self.image_shape[-1])
        if np.shape(images) in _shapes(shape):
            images = np.asarray(images)[None]
        if np.shape(images)[1:] not in _shapes(shape):
            return images
        images = image_array(images, shape)
        if images.dtype != np.uint8:
            images = floats_to_bytes(images, "`images`") if images.size else images.astype("uint8")
        return fit_images(images, tuple(self.image_shape[:2]))

    def _prepared(self, images, shape):
        """Return files and arrays, each prepared, as uint8 (N, H, W, C)."""
        arrays = [each for each in images if _is_image(each)]
        kinds = {(np.shape(each), getattr(each, "dtype", None)) for each in arrays}
        if len(arrays) == len(images) and len(kinds) == 1:
            (found, dtype), *_ = kinds
            if found in _shapes(shape) and (dtype == np.uint8 or dtype.kind == "f"):
                return np.stack(arrays).reshape(-1, *shape)
        pixels = []
        for number, image in enumerate(images):
            name = os.fspath(image) if isinstance(image, (str, os.PathLike)) else f"image {number}"
            # An array of the model's shape is taken as it is.
            fits = _is_image(image) and np.shape(image) in _shapes(shape)
            found = prepared_image(image, self.preparation, "no" if fits else "auto", name=name)
            if found.notes:
                warnings.warn(f"{name}: {', '.join(found.notes)}", UserWarning, stacklevel=4)
            pixels.append(found.pixels)
        return np.stack(pixels)


def know_images(model, run):
    """Tell a model the preparation and the class names of the images of its `RunFolder`."""
    if isinstance(model, TakesFiles):
        if found := (run.saved() or {}).get("preparation"):
            model.preparation = Preparation.from_dict(found)
        model.class_names = run.class_names


def _shapes(shape):
    """Return the shapes of an array of one image of a model."""
    return (shape, shape[:2]) if shape[-1] == 1 else (shape,)


def _is_file(image):
    return isinstance(image, (str, bytes, os.PathLike)) or hasattr(image, "getexif")


def _is_image(image):
    """Return whether this is an array of NumPy or the like of one image."""
    is_array = hasattr(image, "__array__") and hasattr(image, "dtype")
    return is_array and not ops.is_tensor(image) and len(image.shape) in (2, 3)


def _former(model):
    """Return the `Preparation` of a model that was saved without it."""
    shape: Any = getattr(model, "image_shape", None)
    if not shape or shape[-1] is None:
        return None
    settings = getattr(model, "settings", None)
    version = getattr(settings, "data_version", 3)
    former = {"background": "black", "max_value": 65535, "max_float": 1} if version == 1 else {}
    for name in ("background", "max_value"):
        if given := getattr(settings, name, None):
            former[name] = given
    return Preparation(
        None if None in shape[:2] else tuple(shape[:2]),
        shape[-1],
        **former,
        keeps_proportions=getattr(settings, "image_size", None) is None,
        deep_colours=version > 2,
    )
