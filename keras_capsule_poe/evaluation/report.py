"""Metrics of one model, or of several seeds of it, as tables."""

import contextlib

import numpy as np

from keras_capsule_poe.evaluation.accuracy import (
    IMAGES,
    classification_figures,
    classified,
    has_views,
    is_classifier,
    logit_changes,
    measure_of,
    pair_figures,
    shows_several,
    view_figures,
)
from keras_capsule_poe.evaluation.baselines import BOLTZMANN, VAE, control_set
from keras_capsule_poe.evaluation.calibration import calibration_figures
from keras_capsule_poe.evaluation.figures import evaluate, has_classes, reconstruction_errors
from keras_capsule_poe.evaluation.samples import sample_figures
from keras_capsule_poe.evaluation.signs import COMPARED, has_signs, sign_figures

_NOTES = {
    "reconstruction": "Relative squared errors on test images, of pixels or of what is named.",
    "free_energy": "Nats; the gap is test minus training. Means over all images; of more than "
    "60,000 training images, over 20,000 chosen at random, of test images over the first 60,000.",
    "probe": "Test accuracy of logistic regression on training images, of more than 60,000 "
    "on 20,000 chosen at random, on the first 60,000 test images; of features, on at most 12,000 "
    "and the first 10,000.",
    "neighbours": "Test accuracy of the five nearest training images, of at most 12,000, on as "
    "many test images as the probe's.",
    "clustering": "Without labels, fitted on training images and scored on test images, the same "
    "as the probe's; k-means is fitted on at most 20,000 of them, the graph on 10,000.",
    "samples": "As a classifier trained on the data set sees them, against test images. Under "
    "`real`, training images. Controls are fitted to features of at most 12,000 training images, "
    "the model to all. Precision is the share of samples in the ball of a test image that reaches "
    "to its fifth nearest other one, recall that of test images in such a ball of a sample. The "
    "kernel distance is a mean over sets of 1,000, or of all where there are fewer, which moves "
    "its error only. Frechet distance, precision, recall, density and coverage depend on how many "
    "images there are: compare rows of one table.",
    "signs": "F of test images x and of their negatives -x, nats; and which share of images lies "
    "nearer to the negative of a training image than to any.",
    "crops": "The probabilities are means over so many windows of each test image.",
    "side_by_side": "Each image is two test images of different classes, one left and one right.",
    "views": "Share of the test images taken for another class, of viewpoints that were trained on "
    "and of others, with its 95% interval (Wilson).",
    "accuracy": "Share of the test images named rightly, with its 95% interval (Wilson).",
    "pairs": "Share of the test images of several classes of which one is not among the most "
    "probable ones, and share of all their digits that are not, with 95% intervals (Wilson; they "
    "take the digits of a pair for independent).",
    "errors": "Share of the test images of each class taken for another, with its 95% interval.",
    "against": "Test images that only this model, and only the other one, names rightly, and the "
    "probability of numbers as unequal if both were equally good (McNemar).",
    "confusion": "How many test images of each class, a row, are taken for which, a column.",
    "calibration": "Expected calibration error (15 bins), mean of the largest length, activation "
    "or probability of an image's classes, and share of the test images that it names rightly; of "
    "pairs, of the two largest. Margin and spread loss train lengths and activations to lie apart "
    "and no further: only what a softmax gives is trained to be a probability.",
    "reliability": "By the largest length, activation or probability, and by its share in the sum "
    "of all classes: how many test images, its mean, and the share named rightly.",
    "logit_changes": "Mean over input capsules, classes and test images, at most "
    f"{IMAGES:,}, of how far an iteration of routing moves a logit b_ij, in EM routing ln r_ij.",
    "ensemble": "Share of the test images named rightly, of pairs both, with its 95% interval "
    "(Wilson), by each model and by all together: the mean of their lengths, activations or "
    "probabilities.",
    "ensemble_against_first": "Test images that only the ensemble (this), and only the first "
    "model (other), names rightly, and the probability of numbers as unequal if both were equally "
    "good (McNemar).",
}
# Extra notes for sections with such a row.
_ROW_NOTES = {
    BOLTZMANN: "The Boltzmann machine has as many hidden neurons as a code has numbers.",
    VAE: "The variational autoencoder stands in the place of what the model puts on its features: "
    "a Gaussian code of 16 numbers, as many parameters, and as much time to train, up to a cap.",
}
# Sections whose row or column keys are names, which must not become titles.
_NAMED_ROWS = ("confusion", "errors", "reliability", "ensemble")
_NAMED_COLUMNS = ("confusion", "errors")


def is_generative(model):
    """Return True if a model has the `draw` of a `GenerativeModel`."""
    return callable(getattr(model, "draw", None))


def is_judged(model, images):
    """Return True if a model is a classifier and the images have labels."""
    return is_classifier(model) and images.labels is not None


def measure(
    model,
    data,
    samples=10_000,
    probe_images=None,
    seed=0,
    vae_seconds=0,
    found=None,
    controls="plain",
):
    """Return all metrics that a model allows: of its samples, its predictions or both."""
    figures = {}
    if is_generative(model):
        with getattr(model, "fast", contextlib.nullcontext)():
            compared = {"controls": controls, "vae_seconds": vae_seconds}
            figures |= _generative_figures(model, data, samples, probe_images, seed, compared)
    if is_judged(model, data.test):
        found = classified(model, data.test) if found is None else found
        if has_views(data.test):
            figures["views"] = view_figures(found, data.test)
        judge = pair_figures if shows_several(data.test) else classification_figures
        figures |= judge(found, data.test)
        said = found["probabilities"]
        figures |= calibration_figures(said, data.test.labels, measure_of(model))
    if is_classifier(model) and getattr(model, "iterations", 0):
        figures["logit_changes"] = logit_changes(model, data.test.images)
    return figures


def _generative_figures(model, data, samples, probe_images, seed, compared):
    """Return `evaluate`, `signs` and `samples`, with images encoded and decoded only once."""
    # Check the arguments before the slow part.
    control_set(model=model, **compared)
    shared = {}
    kept = min(samples, len(data.train)) if has_classes(data) else 0
    reconstruction, decoded = reconstruction_errors(model, data.test.images, kept)
    options = {"seed": seed, "reconstruction": reconstruction, "kept": shared}
    figures = evaluate(model, data, probe_images, **options)
    if has_signs(model):
        figures["signs"] = sign_figures(model, data, min(samples, COMPARED), seed)
    if kept:
        options = {"decoded": decoded, **shared, **compared}
        figures["samples"] = sample_figures(model, data, samples, seed, **options)
    return figures


def over_seeds(runs):
    """Merge the metrics of several models into one dict of (mean, standard deviation)."""
    if len(runs) == 1:
        return runs[0]
    if isinstance(runs[0], dict):
        shared = [name for name in runs[0] if all(name in run for run in runs)]
        return {name: over_seeds([run[name] for run in runs]) for name in shared}
    if None in runs:
        return None
    return float(np.mean(runs)), float(np.std(runs, ddof=1))


def tables(runs):
    """Return metrics of one or several models as tables (heading, note, columns, rows)."""
    figures = over_seeds(runs)
    found = []
    for section, values in figures.items():
        if not values:
            found.append((_title(section), "No one label an image.", ["value"], []))
        elif any(isinstance(value, dict) for value in values.values()):
            titles = (
                str if section in named else _title for named in (_NAMED_ROWS, _NAMED_COLUMNS)
            )
            found.append((_title(section), _note(section, values), *_nested(values, *titles)))
        else:
            rows = [(_title(name), value) for name, value in values.items()]
            found.append((_title(section), _NOTES[section], ["value"], rows))
    return found


def _note(section, values):
    more = [text for row, text in _ROW_NOTES.items() if row in values]
    return " ".join([_NOTES[section], *more])


def _nested(values, title, column_title):
    """Return columns and rows of a dict of dicts, other values as rows of one value."""
    inner = {name: v for name, v in values.items() if isinstance(v, dict)}
    columns = list(dict.fromkeys(key for v in inner.values() for key in v))
    rows = [(title(name), *(v.get(key) for key in columns)) for name, v in inner.items()]
    rows += [(title(name), v) for name, v in values.items() if not isinstance(v, dict)]
    return [column_title(column) for column in columns], rows


def _title(name):
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]
