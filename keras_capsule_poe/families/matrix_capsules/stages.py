"""Training, export and loading of a network of matrix capsules."""

from keras_capsule_poe.families.classifiers import stages
from keras_capsule_poe.families.matrix_capsules import build
from keras_capsule_poe.families.saved import load_as
from keras_capsule_poe.losses import SpreadLoss
from keras_capsule_poe.models import ConvClassifier, MatrixCapsNet


def matrix(run):
    """Train the network; the margin of a spread loss grows during training."""

    def callbacks(model, steps):
        loss = getattr(model, "spread", None)
        return (
            [build.spread_margin(run.config, steps, loss)] if isinstance(loss, SpreadLoss) else []
        )

    return stages.train(run, "matrix", build, callbacks)


def export(run):
    """Export the network for Keras and as a SavedModel, and draw reconstructions."""
    return stages.export(run, "matrix", build)


def load(path):
    """Load the `MatrixCapsNet` or `ConvClassifier` of a `model.keras`."""
    return load_as((MatrixCapsNet, ConvClassifier), path)
