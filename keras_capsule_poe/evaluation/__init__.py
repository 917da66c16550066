"""Metrics of trained models: reconstruction, representation and sample quality."""

from keras_capsule_poe.evaluation.feature_metrics import linear_probe
from keras_capsule_poe.evaluation.generative import evaluate, sample_metrics
from keras_capsule_poe.evaluation.scores import score_images

__all__ = ["evaluate", "linear_probe", "sample_metrics", "score_images"]
