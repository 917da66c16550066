"""Estimators for scikit-learn: features and clusters of capsules, and features of an RBM.

They have scikit-learn's interface, so they work in pipelines, searches and pickles.
"""

from keras_capsule_poe.sklearn.capsules import CapsuleTransformer
from keras_capsule_poe.sklearn.clusters import CapsuleClusterer
from keras_capsule_poe.sklearn.rbm import RBMTransformer

__all__ = ["CapsuleClusterer", "CapsuleTransformer", "RBMTransformer"]
