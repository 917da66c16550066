"""Metrics of trained models: reconstruction, representation and sample quality."""

from keras_capsule_poe.evaluation.feature_metrics import linear_probe
from keras_capsule_poe.evaluation.generative import evaluate, sample_metrics

__all__ = ["evaluate", "linear_probe", "sample_metrics"]
