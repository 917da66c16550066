"""Images that a model knows and what its capsules win of them, for its page."""

import functools

import numpy as np

from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.data.arrays import known_images
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io.text import class_word


class Content:
    """What a page needs of a model and, if given, of images that it knows.

    Args:
        model: A trained model.
        images: Test images, as `known_images` takes them, or None.
        name: String, the folder or name of the model.
    """

    def __init__(self, model, images=None, name="MODEL"):
        self.model, self.name = model, name
        self.images = None if images is None else known_images(images, model)
        modes = getattr(model, "modes", {})
        self.generates = bool(modes)
        self.has_single = "single" in modes
        self.classifies = not self.generates and hasattr(model, "classify")
        if not (self.generates or self.classifies):
            raise BadUse(f"`model` must generate or classify. Received: {type(model).__name__}")

    @functools.cached_property
    def codes(self):
        """Codes of the known images, a dict of arrays, or None."""
        if self.images is None or not self.generates:
            return None
        return map_batches(self.model.code, self.images.images)

    @functools.cached_property
    def winner(self):
        """The winning capsule (N,) of each known image, or None."""
        return None if self.codes is None else winners(self.codes["probabilities"])

    def share(self, capsule):
        """Return the share of the known images that a capsule wins, or None."""
        return None if self.winner is None else float(np.mean(self.winner == capsule))

    def classes(self, capsule):
        """Return {class name: share} of the known images that a capsule wins."""
        labels = None if self.images is None else self.images.labels
        if self.winner is None or labels is None or labels.ndim > 1:
            return {}
        values, counts = np.unique(labels[self.winner == capsule], return_counts=True)
        return {self.class_name(v): float(c / counts.sum()) for v, c in zip(values, counts)}

    def class_name(self, number):
        """Return the name of a class."""
        names = self.images.class_names if self.images is not None else self.model.class_names
        return class_word(number, names)
