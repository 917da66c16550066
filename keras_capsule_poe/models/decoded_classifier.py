"""Classifiers whose class capsules are decoded to images."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.winners import named_rightly, winners
from keras_capsule_poe.models.classifier import CapsuleClassifier
from keras_capsule_poe.models.replicas import SharedOutGradients

# Values of a dimension in a traversal, the paper's: -0.25 to 0.25 in steps of 0.05.
STEPS = 11


class DecodedClassifier(SharedOutGradients, CapsuleClassifier):
    """Capsules of classes, trained by a loss of their probabilities and one of what they decode to.

    To be mixed into a `keras.Model` with the attributes `decoder` (a layer from capsules (B, J, E)
    to images, or None), `reconstruction_weight`, `mask` (a `CapsuleMask`), `view` (see `CapsNet`),
    `capsules`, J, and `dim`, E; and with the methods `found` and `class_loss`.

    Attributes:
        LOSS: str, what the loss of the probabilities is called among the metrics.

    Examples:

    >>> DecodedClassifier.CODES, DecodedClassifier.SPAN
    ('alone', 0.25)
    """

    # In a traversal all capsules but one are zero, and that one's numbers are moved as they are.
    CODES, SPAN = "alone", 0.25
    SHARED = {"encode": ("images",)}
    LOSS = "class_loss"

    def found(self, outputs):
        """Capsules (B, J, E) and probabilities (B, J) of what the model's `call` gives."""
        raise NotImplementedError

    def class_loss(self, labels, probabilities, sample_weight=None):
        """The loss of probabilities (B, J) by labels (B, J), a scalar."""
        raise NotImplementedError

    def make_trackers(self):
        """The metrics; to be called by the constructor, when there is a decoder or None."""
        self.accuracy_tracker = keras.metrics.Mean(name="accuracy")
        self.loss_of_classes = keras.metrics.Mean(name=self.LOSS)
        if self.decoder is not None:
            self.error_tracker = keras.metrics.Mean(name="squared_error")

    @property
    def ENDPOINTS(self):
        """What a SavedModel answers: without a decoder there are no images."""
        names = ("classify", "encode")
        more = () if self.decoder is None else ("reconstruct", "traverse")
        return {name: ("images",) for name in (*names, *more)}

    # Training

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

    # What one can ask

    def encode(self, images):
        """Capsules of classes (B, J, E), and their `probabilities` (B, J)."""
        capsules, probabilities = self.found(self(images, training=False))
        return {"capsules": capsules, "probabilities": probabilities}

    def classify(self, images):
        probabilities = self.encode(images)["probabilities"]
        return {"probabilities": probabilities, "classes": winners(probabilities)}

    def render(self, capsules):
        """Images (B, H, W, C), under the key `images`, of capsules (B, J, E) as they are."""
        return {"images": ops.cast(self._decoder(capsules, training=False), "float32")}

    def reconstruct(self, images):
        """The images that the decoder makes of the most probable capsule of each image alone."""
        capsules, classes = self._most_probable(images)
        return self.render(self.mask(capsules, ops.one_hot(classes, self.capsules)))

    def _most_probable(self, images):
        """Capsules (B, J, E), and which is the most probable one (B,)."""
        encoded = self.encode(images)
        return encoded["capsules"], winners(encoded["probabilities"])

    def reconstructions(self, images):
        """See `GenerativeModel.reconstructions`: of the most probable capsule."""
        return {"longest_capsule": (self.reconstruct(images)["images"], self._seen(images))}

    def traverse(self, images):
        """Each dimension of each image's most probable capsule moved, one at a time.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict: `images` (B, E, 11, H, W, C), a row a dimension, moved by -0.25 to 0.25 of the
            capsule as it is; `classes` (B,), which capsule.

        Reference:

        - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Figure 4
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
    """Labels (B, J), target images (B, T, H, W, C) and the labels (B, T, J) of their parts."""
    if isinstance(y, (tuple, list)):
        return tuple(y)
    return y, x[:, None], y[:, None]
