"""Metrics of one model, or of several seeds of it, as tables."""

import contextlib

import numpy as np

from keras_capsule_poe.evaluation.accuracy import (
    IMAGES,
    classification_metrics,
    classified,
    has_views,
    is_classifier,
    logit_changes,
    measure_of,
    pair_metrics,
    shows_several,
    view_metrics,
)
from keras_capsule_poe.evaluation.baselines import BOLTZMANN, VAE, baseline_set
from keras_capsule_poe.evaluation.calibration import calibration_metrics
from keras_capsule_poe.evaluation.metrics import (
    evaluate,
    has_classes,
    reconstruction_errors,
    silent,
)
from keras_capsule_poe.evaluation.samples import sample_metrics
from keras_capsule_poe.evaluation.signs import COMPARED, has_signs, sign_metrics

_NOTES = {
    "reconstruction": "Relative squared error on test images, of pixels or of the part in the row.",
    "free_energy": "Mean free energy in nats. The gap is test minus training. With more than "
    "60,000 training images, 20,000 random ones are used. Of the test images, the first 60,000 are "
    "used.",
    "probe": "Test accuracy of logistic regression. With more than 60,000 training images, 20,000 "
    "random ones are used. Of the test images, the first 60,000 are used. Features use at most "
    "12,000 training and 10,000 test images.",
    "neighbours": "Test accuracy of the five nearest training images (at most 12,000), on the test "
    "images of the probe.",
    "clustering": "Clusterings without labels, fitted on training images and scored on the test "
    "images of the probe. k-means uses at most 20,000 images, the graph 10,000.",
    "samples": "Measured with a classifier that was trained on this data set, against test images. "
    "Row `real` holds training images. Baselines are fitted to the features of at most 12,000 "
    "training images, the model to all. FID, KID, precision, recall, density and coverage use "
    "the features of this classifier, not of an Inception network, so compare them within this "
    "table only. Confident is the fraction of images with a class probability above 0.9. Purity is "
    "the mean share of the main class among a capsule's samples. Class coverage is the number of "
    "classes that are the main class of a capsule.",
    "signs": "Free energy in nats of test images x and of their negatives -x, and the fraction of "
    "images that are nearer to the negative of a training image than to any training image.",
    "crops": "The probabilities are means over this number of crops of each test image.",
    "side_by_side": "Each image shows two test images of different classes side by side.",
    "views": "Error rate on familiar and on novel viewpoints, with 95% Wilson intervals.",
    "accuracy": "Fraction of test images with the right class, with its 95% Wilson interval.",
    "pairs": "Test images with several classes: the fraction with a wrong class among the most "
    "probable ones, and the same per digit, with 95% Wilson intervals that treat the digits of a "
    "pair as independent.",
    "errors": "Error rate on the test images of each class, with its 95% Wilson interval.",
    "confusion": "Number of test images by true class (row) and predicted class (column).",
    "calibration": "Expected calibration error (15 bins), mean confidence and accuracy. Confidence "
    "is the largest length, activation or probability; for pairs, the two largest. Only a softmax "
    "is trained to give probabilities; margin and spread loss are not.",
    "reliability": "Test images by confidence: their number, mean confidence and accuracy.",
    "logit_changes": "Mean change of the routing logits b_ij by each iteration (ln r_ij in EM "
    f"routing), over input capsules, classes and at most {IMAGES:,} test images.",
    "models": "Fraction of test images with the right class, with its 95% Wilson interval. The "
    "ensemble averages the lengths, activations or probabilities of all models.",
    "mcnemar": "McNemar's exact test against the first model: test images that only the first "
    "model, and only the other one, classifies rightly, and the p-value.",
}
# Extra notes for sections with such a row.
_ROW_NOTES = {
    BOLTZMANN: "The Boltzmann machine has as many hidden units as a code has dimensions.",
    VAE: "The variational autoencoder of the features has a 16-dimensional Gaussian code, as many "
    "parameters as the model, and at most as much training time.",
}
# Headings of metrics, if they differ from their names in JSON files.
_TITLES = {
    "recognised": "Confident",
    "frechet": "FID",
    "kernel_distance": "KID",
    "kernel_distance_error": "KID error",
    "modal_classes": "Class coverage",
    "mcnemar": "McNemar's test",
    "signs": "Negative images",
    "neighbours": "Nearest neighbours",
    "auc": "AUC",
    "p": "p-value",
}
# Sections whose row or column keys are names, which must not become titles.
_NAMED_ROWS = ("confusion", "errors", "reliability", "models", "mcnemar")
_NAMED_COLUMNS = ("confusion", "errors")


def is_generative(model):
    """Return True if a model has the `draw` of a `GenerativeModel`."""
    return callable(getattr(model, "draw", None))


def is_labelled_classifier(model, images):
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
    baselines="simple",
    progress=silent,
):
    """Return all metrics that a model allows: of its samples, its predictions or both.

    `progress` is called with a text at each step.
    """
    figures = {}
    if is_generative(model):
        with getattr(model, "fast", contextlib.nullcontext)():
            compared = {"baselines": baselines, "vae_seconds": vae_seconds}
            figures |= _generative_figures(
                model, data, samples, probe_images, seed, compared, progress
            )
    if is_labelled_classifier(model, data.test):
        progress("classifying test images")
        found = classified(model, data.test) if found is None else found
        if has_views(data.test):
            figures["views"] = view_metrics(found, data.test)
        measured = pair_metrics if shows_several(data.test) else classification_metrics
        figures |= measured(found, data.test)
        said = found["probabilities"]
        figures |= calibration_metrics(said, data.test.labels, measure_of(model))
    if is_classifier(model) and getattr(model, "routing_iterations", 1) > 1:
        figures["logit_changes"] = logit_changes(model, data.test.images)
    return figures


def _generative_figures(model, data, samples, probe_images, seed, compared, progress):
    """Return `evaluate`, `signs` and `samples`, with images encoded and decoded only once."""
    # Check the arguments before the slow part.
    baseline_set(model=model, **compared)
    shared = {}
    progress("reconstructing test images")
    kept = min(samples, len(data.train)) if has_classes(data) else 0
    reconstruction, decoded = reconstruction_errors(model, data.test.images, kept)
    options = {"seed": seed, "reconstruction": reconstruction, "kept": shared}
    options["progress"] = progress
    figures = evaluate(model, data, probe_images, **options)
    if has_signs(model):
        progress("free energies of negatives")
        figures["signs"] = sign_metrics(model, data, min(samples, COMPARED), seed)
    if kept:
        options = {"decoded": decoded, "progress": progress, **shared, **compared}
        figures["samples"] = sample_metrics(model, data, samples, seed, **options)
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
            found.append((_title(section), "Needs one label per image.", ["value"], []))
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
    text = _TITLES.get(name, name.replace("_", " "))
    return text if name == "p" else text[:1].upper() + text[1:]
