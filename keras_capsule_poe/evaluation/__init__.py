"""Metrics of trained models: reconstruction, representation and sample quality."""

from keras_capsule_poe.evaluation.figures import evaluate, linear_probe
from keras_capsule_poe.evaluation.samples import sample_figures

__all__ = ["evaluate", "linear_probe", "sample_figures"]
