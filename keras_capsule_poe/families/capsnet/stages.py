"""The stages of a supervised capsule network: its training, and the whole."""

from keras_capsule_poe.families.capsnet import build
from keras_capsule_poe.families.classifiers import stages
from keras_capsule_poe.families.saved import load_as
from keras_capsule_poe.models import CapsNet, ConvClassifier


def capsnet(run):
    """Trains the network by the margin loss and the error of its reconstructions."""
    return stages.train(run, "capsnet", build)


def export(run):
    """Saves the network for Keras and as a SavedModel, and draws what it makes of images."""
    return stages.export(run, "capsnet", build)


def load(path):
    """The `CapsNet` or `ConvClassifier` of a `model.keras`; see `load_as`."""
    return load_as((CapsNet, ConvClassifier), path)
