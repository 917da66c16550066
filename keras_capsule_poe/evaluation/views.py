"""Errors of a classifier on familiar and on novel viewpoints."""

from keras_capsule_poe.evaluation.accuracy import error_of
from keras_capsule_poe.evaluation.classified import are_right


def has_views(images):
    """Return True if an `ImageSet` marks which images are of novel viewpoints."""
    return "novel" in images.extras


def view_figures(found, images):
    """Return `error_of` familiar and of novel viewpoints (Hinton et al., 2018, Sec. 5.1)."""
    is_right, is_novel = are_right(found, images.labels), images.extras["novel"].astype(bool)
    views = {"familiar": is_right[~is_novel], "novel": is_right[is_novel]}
    return {name: error_of(right) for name, right in views.items() if len(right)}
