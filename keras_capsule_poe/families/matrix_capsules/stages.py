"""The stages of a network of matrix capsules: its training, and the whole."""

from keras_capsule_poe.families.classifiers import stages
from keras_capsule_poe.families.matrix_capsules import build
from keras_capsule_poe.families.saved import load_as
from keras_capsule_poe.losses import SpreadLoss
from keras_capsule_poe.models import ConvClassifier, MatrixCapsNet


def matrix(run):
    """Trains the network by the loss of its activations, whose margin grows."""

    def callbacks(model, steps):
        loss = getattr(model, "spread", None)
        return (
            [build.spread_margin(run.config, steps, loss)] if isinstance(loss, SpreadLoss) else []
        )

    return stages.train(run, "matrix", build, callbacks)


def export(run):
    """Saves the network for Keras and as a SavedModel, and draws what it makes of images."""
    return stages.export(run, "matrix", build)


def load(path):
    """The `MatrixCapsNet` or `ConvClassifier` of a `model.keras`; see `load_as`."""
    return load_as((MatrixCapsNet, ConvClassifier), path)
