"""Metrics of trained models: reconstruction, representation and sample quality."""

from keras_capsule_poe.evaluation.metrics import evaluate, linear_probe
from keras_capsule_poe.evaluation.samples import sample_metrics

__all__ = ["evaluate", "linear_probe", "sample_metrics"]
