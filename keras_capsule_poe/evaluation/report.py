"""The figures of one model, or of several seeds of it, as tables and as a page."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.accuracy import classification_figures, worst_images
from keras_capsule_poe.evaluation.figures import evaluate, has_classes
from keras_capsule_poe.evaluation.meaning import capsule_meaning, mean_traversals
from keras_capsule_poe.evaluation.page import write_page
from keras_capsule_poe.evaluation.pairs import pair_figures, worst_pairs
from keras_capsule_poe.evaluation.samples import sample_figures
from keras_capsule_poe.evaluation.signs import COMPARED, has_signs, sign_figures
from keras_capsule_poe.evaluation.sources import draws
from keras_capsule_poe.generation.grids import reconstruction_rows, sample_rows
from keras_capsule_poe.generation.parts import part_rows

SHOWN, ROWS = 20, 4
# Rows of the samples that are shown beside each capsule.
CAPSULE_ROWS = 10
_NOTES = {
    "reconstruction": "Relative squared errors on test images, of pixels or of what is named.",
    "free_energy": "Nats; the gap is test minus training.",
    "probe": "Test accuracy of logistic regression on training images; of features, on at most "
    "12,000.",
    "neighbours": "Test accuracy of the five nearest training images, of at most 12,000.",
    "clustering": "Without labels, fitted on training images, scored on test images.",
    "samples": "As a classifier trained on the data set sees them, against test images. Under "
    "`real`, training images. The controls are fitted to features of at most 12,000 training "
    "images, the model to all. The Boltzmann machine has as many hidden neurons as a code has "
    "numbers. The variational autoencoder stands in the place of what the model puts on its "
    "features: a Gaussian code of 16 numbers, as many parameters, and as much time to train, up "
    "to a cap. Precision is the share of samples in the ball of a test image that reaches to its "
    "fifth nearest other one, recall that of test images in such a ball of a sample. The kernel "
    "distance is a mean over sets of 1,000, or of all where there are fewer, which moves its "
    "error only. Frechet distance, precision, recall, density and coverage depend on how many "
    "images there are: compare rows of one table.",
    "signs": "F of test images x and of their negatives -x, nats; and which share of images lies "
    "nearer to the negative of a training image than to any.",
    "accuracy": "Share of the test images named rightly, with its 95% interval (Wilson).",
    "pairs": "Share of the test images of several classes of which one is not among the most "
    "probable ones, and share of all their digits that are not, with 95% intervals (Wilson; they "
    "take the digits of a pair for independent).",
    "errors": "Share of the test images of each class taken for another, with its 95% interval.",
    "against": "Test images that only this model, and only the other one, names rightly, and the "
    "probability of numbers as unequal if both were equally good (McNemar).",
    "confusion": "How many test images of each class, a row, are taken for which, a column.",
}


def is_generative(model):
    """Whether a model can be asked what a `GenerativeModel` can.

    Examples:

    >>> is_generative(object())
    False
    """
    return callable(getattr(model, "draw", None))


def is_classifier(model):
    """Whether a model can be asked what a `CapsuleClassifier` can.

    Examples:

    >>> is_classifier(object())
    False
    """
    return callable(getattr(model, "classify", None))


def shows_several(images):
    """Whether each image of an `ImageSet` has several labels.

    Examples:

    >>> from keras_capsule_poe.data import ImageSet
    >>> shows_several(ImageSet(np.zeros((4, 2, 2, 1), "uint8"), np.zeros((4, 2), "int64")))
    True
    """
    return images.labels is not None and images.labels.ndim > 1


def measure(model, data, samples=10_000, probe_images=None, seed=0, vae_seconds=0):
    """All figures of a model: of what it generates, of what it names, or of both.

    Args:
        model: `GenerativeModel` or `CapsuleClassifier`, or of both kinds.
        data: `ImageData`.
        samples: int, of each kind; zero: none.
        probe_images, seed: See `evaluate`.
        vae_seconds: See `sample_figures`.

    Returns:
        dict of `evaluate`; of a model that `has_signs` also `signs`, see `sign_figures`; with
        labels `samples`, of `sample_figures`; and with labels of `classification_figures`, or,
        of images that show several classes, of `pair_figures`.

    Examples:

    >>> class Dark:
    ...     def classify(self, images):
    ...         return {"classes": images[:, 0, 0, 0] * 0}
    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> images = ImageSet(np.zeros((4, 2, 2, 1), "uint8"), np.zeros(4, "int64"))
    >>> list(measure(Dark(), ImageData(images, images)))
    ['accuracy', 'errors', 'confusion']
    """
    figures = {}
    if is_generative(model):
        figures |= evaluate(model, data, probe_images, seed=seed)
        if has_signs(model):
            figures["signs"] = sign_figures(model, data, min(samples, COMPARED), seed)
        if samples and has_classes(data):
            figures["samples"] = sample_figures(model, data, samples, seed, vae_seconds=vae_seconds)
    if is_classifier(model) and data.test.labels is not None:
        judge = pair_figures if shows_several(data.test) else classification_figures
        figures |= judge(model, data.test)
    return figures


def over_seeds(runs):
    """Figures of several models as one: (mean, standard deviation) of each number.

    Args:
        runs: list of nested dicts of numbers, all alike.

    Returns:
        The one dict, or a dict like it of pairs.

    Examples:

    >>> over_seeds([{"accuracy": 1.0}, {"accuracy": 3.0}])
    {'accuracy': (2.0, 1.4142135623730951)}
    """
    if len(runs) == 1:
        return runs[0]
    if isinstance(runs[0], dict):
        return {name: over_seeds([run[name] for run in runs]) for name in runs[0]}
    if None in runs:
        return None
    return float(np.mean(runs)), float(np.std(runs, ddof=1))


def tables(runs):
    """Figures as tables.

    Args:
        runs: list of dicts of `measure`, one a model.

    Returns:
        list of (heading, note, columns, rows), see `write_page`.

    Examples:

    >>> tables([{"free_energy": {"gap": 0.1}}])
    [('Free energy', 'Nats; the gap is test minus training.', ['value'], [('Gap', 0.1)])]
    """
    figures = over_seeds(runs)
    found = []
    for section, values in figures.items():
        if not values:
            found.append((_title(section), "No one label an image.", ["value"], []))
        elif any(isinstance(value, dict) for value in values.values()):
            name = str if section in ("confusion", "errors") else _title
            found.append((_title(section), _NOTES[section], *_nested(values, name)))
        else:
            rows = [(_title(name), value) for name, value in values.items()]
            found.append((_title(section), _NOTES[section], ["value"], rows))
    return found


def _nested(values, title):
    """A dict of dicts as columns and rows; what is no dict comes as a row of one value."""
    inner = {name: v for name, v in values.items() if isinstance(v, dict)}
    columns = list(dict.fromkeys(key for v in inner.values() for key in v))
    rows = [(title(name), *(v.get(key) for key in columns)) for name, v in inner.items()]
    rows += [(title(name), v) for name, v in values.items() if not isinstance(v, dict)]
    return [title(column) for column in columns], rows


def _title(name):
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def write_report(path, model, data, dataset, found, seed=0):
    """A page of the tables; of a model that generates the grids and each capsule; of one that
    names classes what it makes of images, and images that it takes for another class.

    Args:
        path: The .html file.
        model: `GenerativeModel` or `CapsuleClassifier`.
        data: `ImageData`.
        dataset: str.
        found: list of tables, of `tables`.
        seed: int.

    Raises:
        RunFailed: If it cannot be written.
    """
    pictures, capsules = [], []
    if is_generative(model):
        pictures = [*_sample_pictures(model, seed), _reconstruction_picture(model, data.test)]
        capsules = _capsules(model, data.test, seed)
    elif "reconstruct" in model.ENDPOINTS:
        pictures.append(_reconstruction_picture(model, data.test))
    if is_classifier(model) and data.test.labels is not None:
        pictures += _mistaken_picture(model, data.test)
    write_page(path, f"{model.TITLE}: {dataset}", found, pictures, capsules)


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
    shown = test.head(SHOWN)
    if is_classifier(model) and shows_several(shown):
        _, rows = part_rows(model, shown.images, shown.labels, shown.extras.get("targets"))
    else:
        rows = reconstruction_rows(model, shown.images)
    captions = ", ".join(name.replace("_", " ") for name in rows)
    return "Reconstructions", f"Test images, by rows: {captions}.", list(rows.values())


def _mistaken_picture(model, test):
    worst = worst_pairs if shows_several(test) else worst_images
    wrong, labels, named = worst(model, test, SHOWN)
    if not len(wrong):
        return []
    pairs = ", ".join(
        f"{'+'.join(map(str, np.ravel(label)))} for {'+'.join(map(str, np.ravel(name)))}"
        for label, name in zip(labels, named)
    )
    caption = f"Test images taken for another class, the surest first: {pairs}."
    return [("Mistaken", caption, [to_pixels(test.images[wrong])])]


def _capsules(model, test, seed):
    """What each capsule means, with the pictures of it."""
    codes = map_batches(model.encode, test.images)
    labels, names = _classes(test)
    mode, domain = next(iter(draws(model).values()))
    # Only an image of one capsule says what that capsule is.
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
    """Labels from zero up, and their names, where there are any of either."""
    if images.labels is None or images.class_names or images.labels.min() >= 0:
        return images.labels, images.class_names
    values, labels = np.unique(images.labels, return_inverse=True)
    return labels, [str(value) for value in values]
