"""The estimators keep scikit-learn's conventions and learn what the models of the library learn.

Rejected: a step of another rule than that of `HarmoniumModel`, weights that lose the offsets,
training that depends on the form of X, features that depend on the batch, and a clamped feature
that moves.
"""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import keras_capsule_poe as kcp
from keras_capsule_poe.models.boltzmann.arrays import ArrayMachine, Rule
from keras_capsule_poe.sklearn import CapsuleTransformer, RBMTransformer

OUTSIDE = "the check trains on values outside [0, 1], which are an error without rescale=True"


def tiny(**options):
    """A `CapsuleTransformer` whose graph is small, because checks build it often."""
    options = {"n_iter": 1, "primary_dim": 4, "random_state": 0, **options}
    return CapsuleTransformer(2, 2, **options)


def refused(estimator):
    is_strict = isinstance(estimator, RBMTransformer) and not estimator.rescale
    return dict.fromkeys(TRAINED_OUTSIDE, OUTSIDE) if is_strict else {}


TRAINED_OUTSIDE = ()


@parametrize_with_checks(
    [RBMTransformer(4, n_iter=2, rescale=True), RBMTransformer(4, n_iter=2), tiny()],
    expected_failed_checks=refused,
)
def test_conventions(estimator, check):
    check(estimator)
