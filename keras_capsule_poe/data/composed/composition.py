"""Compositions: seeded, pure functions from images and labels to new images."""

import abc

import numpy as np


class Composition(abc.ABC):
    """Seeded composition of images from others."""

    # Called once per epoch (`draw`) and once per batch (`compose`); batching must not matter.
    needs_classes = False

    @abc.abstractmethod
    def shape(self, image_shape):
        """Return the shape of images composed from images of shape (H, W, C)."""

    @abc.abstractmethod
    def draw(self, n, labels, rng):
        """Draw the random numbers of `n` images, a dict of arrays (n, ...)."""

    @abc.abstractmethod
    def compose(self, images, labels, index, drawn):
        """Return `images`, any `labels` and extras (B, ...) of the images at `index`."""

    def __call__(self, images, labels, rng):
        """Compose all of `images`."""
        drawn = self.draw(len(images), labels, rng)
        return self.compose(images, labels, np.arange(len(images)), drawn)


def one_label(labels, index):
    """Return the labels at `index` as a dict, empty without labels."""
    return {} if labels is None else {"labels": labels[index]}
