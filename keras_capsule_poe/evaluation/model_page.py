"""The HTML page of one model: tables and pictures."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.accuracy import worst_of_each
from keras_capsule_poe.evaluation.calibration import calibration_figures, reliability_chart
from keras_capsule_poe.evaluation.classified import (
    classified,
    is_classifier,
    measure_of,
    shows_several,
)
from keras_capsule_poe.evaluation.history import history_chart
from keras_capsule_poe.evaluation.meaning import capsule_meaning, mean_traversals
from keras_capsule_poe.evaluation.page import write_page
from keras_capsule_poe.evaluation.pairs import worst_pairs
from keras_capsule_poe.evaluation.report import is_generative, is_judged
from keras_capsule_poe.evaluation.sources import draws
from keras_capsule_poe.generation.grids import reconstruction_rows, sample_rows
from keras_capsule_poe.generation.parts import as_words, named_rows
from keras_capsule_poe.io.charts import chart_pixels

SHOWN, ROWS, MISTAKEN = 20, 4, 10
# Number of samples shown for each capsule.
CAPSULE_ROWS = 10


def write_report(path, model, data, dataset, tables, seed=0, found=None, history=()):
    """Write the page with the tables and the pictures that the kind of model allows."""
    pictures, capsules = [], []
    if is_generative(model):
        pictures = [*_sample_pictures(model, seed), _reconstruction_picture(model, data.test)]
        capsules = _capsules(model, data.test, seed)
    elif "reconstruct" in model.ENDPOINTS:
        pictures.append(_reconstruction_picture(model, data.test))
    if is_judged(model, data.test):
        found = classified(model, data.test) if found is None else found
        pictures += _mistaken_pictures(found, data.test)
        pictures.append(_reliability_picture(model, found, data.test))
    if history:
        pictures.append(_history_picture(history))
    write_page(path, f"{model.TITLE}: {dataset}", tables, pictures, capsules)


def _sample_pictures(model, seed):
    return [
        (
            f"Samples: {mode}" + (f", {domain}" if domain else ""),
            f"{model.MODES[mode].note} {model.MODES[mode].domain_notes.get(domain, '')}".strip(),
            sample_rows(model, ROWS, seed, mode, domain),
        )
        for mode, domain in draws(model).values()
    ]


def _reconstruction_picture(model, test):
    shown, words = test.head(SHOWN), ""
    if is_classifier(model) and shown.labels is not None and not is_generative(model):
        classes, rows = named_rows(model, shown)
        words = (
            f" Labels, and what they are taken for: {', '.join(as_words(shown.labels, classes))}."
        )
    else:
        rows = reconstruction_rows(model, shown.images)
    captions = ", ".join(name.replace("_", " ") for name in rows)
    return "Reconstructions", f"Test images, by rows: {captions}.{words}", list(rows.values())


def _mistaken_pictures(found, test):
    """Return a picture of wrong images, the most confident first, with one row per class."""
    if shows_several(test):
        wrong, labels, named = worst_pairs(found, test.labels, SHOWN)
        words = ", ".join(
            f"{'+'.join(map(str, label))} for {'+'.join(map(str, name))}"
            for label, name in zip(labels, named)
        )
        caption = f"Test images taken for another class, the surest first: {words}."
        return [("Mistaken", caption, [to_pixels(test.images[wrong])])] if len(wrong) else []
    each, names = worst_of_each(found, test.labels, MISTAKEN), test.class_names or ()

    def word(label):
        return str(names[label]) if 0 <= label < len(names) else str(label)

    rows = [to_pixels(test.images[wrong]) for wrong, _ in each.values()]
    words = "; ".join(
        f"{word(label)} for {', '.join(map(word, named))}" for label, (_, named) in each.items()
    )
    caption = f"Test images taken for another class, a row a class, the surest first: {words}."
    return [("Mistaken", caption, rows)] if rows else []


def _reliability_picture(model, found, test):
    measure = measure_of(model)
    table = calibration_figures(found["probabilities"], test.labels, measure)["reliability"]
    aim = "as it is trained to be" if measure == "probability" else "which is no aim of the loss"
    caption = (
        f"Bars: share of the test images named rightly, by the largest {measure} of their classes, "
        f"and how many they are. On the line it would be the probability of being right, {aim}."
    )
    return "Reliability", caption, [to_pixels(chart_pixels(reliability_chart(table)))[None]]


def _history_picture(history):
    caption = "What was measured after each epoch of training, on training and held-out images."
    return "Training", caption, [to_pixels(chart_pixels(history_chart(history)))[None]]


def _capsules(model, test, seed):
    """Return the meaning of each capsule, with its pictures."""
    codes = map_batches(model.encode, test.images)
    labels, names = _classes(test)
    mode, domain = next(iter(draws(model).values()))
    # Samples describe a capsule only if each sample is of one capsule.
    alone = "capsule" in model.draw(1, seed, mode, domain)
    columns = sample_rows(model, CAPSULE_ROWS, seed, mode, domain) if alone else None
    traversals = mean_traversals(model, codes["capsules"])
    capsules = capsule_meaning(codes["probabilities"], labels)
    for meaning in capsules:
        capsule = meaning["capsule"]
        meaning["class_names"] = names
        meaning["images"] = to_pixels(test.images[meaning["top"]])
        if columns is not None:
            meaning["samples"] = np.stack([row[capsule] for row in columns])
        meaning["traversal"] = traversals[capsule]
    return capsules


def _classes(images):
    """Return non-negative labels and their names, if there are any."""
    if images.labels is None or images.class_names or images.labels.min() >= 0:
        return images.labels, images.class_names
    values, labels = np.unique(images.labels, return_inverse=True)
    return labels, [str(value) for value in values]
