"""What a trained model is worth: reconstruction, representation, and the quality of its samples."""

from keras_capsule_poe.evaluation.figures import evaluate, linear_probe
from keras_capsule_poe.evaluation.samples import sample_figures

__all__ = ["evaluate", "linear_probe", "sample_figures"]
