"""Classifiers whose class capsules are decoded to images."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.winners import named_rightly, winners
from keras_capsule_poe.models.classifier import CapsuleClassifier
from keras_capsule_poe.models.replicas import SharedOutGradients

# Values per dimension in a traversal: -0.25 to 0.25 in steps of 0.05, as in the paper.
STEPS = 11


class DecodedClassifier(SharedOutGradients, CapsuleClassifier):
    """Mixin for classifiers trained by a class loss and the error of decoded images."""

    # A subclass sets decoder, reconstruction_weight, mask, view, capsules and dim.
    # A traversal zeroes all other capsules and adds up to SPAN to one value.
    CODES, SPAN = "alone", 0.25
    SHARED = {"encode": ("images",)}
    LOSS = "class_loss"

    def found(self, outputs):
        """Return capsules (B, J, E) and probabilities (B, J) from the outputs of `call`."""
        raise NotImplementedError

    def class_loss(self, labels, probabilities, sample_weight=None):
        """Return the scalar loss of probabilities (B, J) for labels (B, J)."""
        raise NotImplementedError

    def make_trackers(self):
        """Create the metrics. Call it after `decoder` is set."""
        self.accuracy_tracker = keras.metrics.Mean(name="accuracy")
        self.loss_of_classes = keras.metrics.Mean(name=self.LOSS)
        if self.decoder is not None:
            self.error_tracker = keras.metrics.Mean(name="squared_error")

    @property
    def ENDPOINTS(self):
        """SavedModel endpoints; those that return images need a decoder."""
        names = ("classify", "encode")
        more = () if self.decoder is None else ("reconstruct", "traverse")
        return {name: ("images",) for name in (*names, *more)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.check_compiled()
        labels, targets, parts = _parted(x, y)
        capsules, probabilities = self.found(y_pred)
        loss = self.whole_loss(self.class_loss(labels, probabilities, sample_weight))
        number = ops.shape(labels)[0]
        self.loss_of_classes.update_state(loss, number)
        if self.decoder is not None:
            error = 0.0
            for part in range(targets.shape[1]):
                images = self.decoder(self.mask(capsules, parts[:, part]), training=training)
                target = self._seen(targets[:, part])
                gap = ops.cast(images, "float32") - ops.cast(target, "float32")
                squared = ops.sum(ops.square(gap), axis=(1, 2, 3))
                if sample_weight is not None:
                    squared = ops.cast(sample_weight, squared.dtype) * squared
                error = error + ops.mean(squared)
            self.error_tracker.update_state(error, number)
            loss = loss + self.reconstruction_weight * error
        return loss + sum(self.losses) if self.losses else loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        labels, _, _ = _parted(x, y)
        _, probabilities = self.found(y_pred)
        self.accuracy_tracker.update_state(named_rightly(labels, probabilities))
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def encode(self, images):
        """Return a dict with class `capsules` (B, J, E) and their `probabilities` (B, J)."""
        capsules, probabilities = self.found(self(images, training=False))
        return {"capsules": capsules, "probabilities": probabilities}

    def classify(self, images):
        probabilities = self.encode(images)["probabilities"]
        return {"probabilities": probabilities, "classes": winners(probabilities)}

    def render(self, capsules):
        """Return a dict with the `images` (B, H, W, C) decoded from capsules (B, J, E)."""
        return {"images": ops.cast(self._decoder(capsules, training=False), "float32")}

    def reconstruct(self, images):
        """Decode each image from its most probable capsule alone."""
        capsules, classes = self._most_probable(images)
        return self.render(self.mask(capsules, ops.one_hot(classes, self.capsules)))

    def _most_probable(self, images):
        """Return capsules (B, J, E) and the index (B,) of the most probable one."""
        encoded = self.encode(images)
        return encoded["capsules"], winners(encoded["probabilities"])

    def reconstructions(self, images):
        """Return the pair (decoded, original) of images as `longest_capsule`."""
        return {"longest_capsule": (self.reconstruct(images)["images"], self._seen(images))}

    def traverse(self, images):
        """Vary each dimension of each image's most probable capsule, as Sabour et al. (Figure 4).

        Returns:
            Dict with the decoded `images` (B, E, 11, H, W, C), one row per dimension, offset by
            -0.25 to 0.25, and `classes` (B,), the index of the capsule.
        """
        (capsules, chosen), dim = self._most_probable(images), self.dim
        moves = np.linspace(-self.SPAN, self.SPAN, STEPS, dtype="float32")
        moves = ops.convert_to_tensor(np.eye(dim, dtype="float32")[:, None] * moves[:, None])
        moved = capsules[:, None, None] + moves[None, :, :, None]
        codes = self.mask(
            ops.reshape(moved, (-1, self.capsules, dim)),
            ops.repeat(ops.one_hot(chosen, self.capsules), dim * STEPS, axis=0),
        )
        shown = self.render(codes)["images"]
        shape = (-1, dim, STEPS, *shown.shape[1:])
        return {"images": ops.reshape(shown, shape), "classes": chosen}

    def _seen(self, images):
        return images if self.view is None else self.view(images)

    @property
    def _decoder(self):
        if self.decoder is None:
            raise ValueError("A network without a decoder makes no images. Received: decoder=None")
        return self.decoder


def _parted(x, y):
    """Return labels (B, J), targets (B, T, H, W, C) and labels (B, T, J) of the parts."""
    if isinstance(y, (tuple, list)):
        return tuple(y)
    return y, x[:, None], y[:, None]
