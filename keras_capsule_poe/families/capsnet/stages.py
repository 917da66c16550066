"""Training, export and loading of a supervised capsule network."""

from keras_capsule_poe.families.capsnet import build
from keras_capsule_poe.families.classifiers import stages
from keras_capsule_poe.families.saved import load_as
from keras_capsule_poe.models import CapsNet, ConvClassifier


def capsnet(run):
    """Train the network by the margin loss and the reconstruction error."""
    return stages.train(run, "capsnet", build)


def export(run):
    """Export the network for Keras and as a SavedModel, and draw reconstructions."""
    return stages.export(run, "capsnet", build)


def load(path):
    """Load the `CapsNet` or `ConvClassifier` of a `model.keras`."""
    return load_as((CapsNet, ConvClassifier), path)
