"""The figures of one model, or of several seeds of it, as tables and as a page."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.figures import evaluate, has_classes
from keras_capsule_poe.evaluation.meaning import capsule_meaning, traversals
from keras_capsule_poe.evaluation.page import write_page
from keras_capsule_poe.evaluation.samples import sample_figures
from keras_capsule_poe.functions.partition import partition_check
from keras_capsule_poe.generation.grids import capsule_grid, reconstruction_grid
from keras_capsule_poe.generation.sampling import joint_arrays

SHOWN = 20
_NOTES = {
    "reconstruction": "Relative squared errors on test images; the last of the primary capsules, the others of pixels.",
    "free_energy": "Nats; the gap is test minus training.",
    "probe": "Test accuracy of logistic regression on training images; of features, on at most 12,000.",
    "neighbours": "Test accuracy of the five nearest training images, of at most 12,000.",
    "clustering": "Without labels, fitted on training images, scored on test images.",
    "partition_check": "Log partition function, nats, of a small model with fixed routing: by enumeration of its states and by "
    "annealed importance sampling.",
    "samples": "As a classifier trained on the data set sees them, against test images. Under `real`, training images. "
    "The three Gaussian controls are fitted to features of at most 12,000 training images, the model to all.",
}


def measured(product, data, samples=10_000, probe_images=None, seed=0):
    """All figures of a model.

    Args:
        product: `ProductOfExpertCapsules`.
        data: `ImageData`.
        samples: int, of each kind; zero: none.
        probe_images, seed: See `evaluate`.

    Returns:
        dict of `evaluate`, and `partition_check`; with labels also `samples`, of
        `sample_figures`.
    """
    figures = evaluate(product, data, probe_images, seed=seed)
    figures["partition_check"] = partition_check(seed)
    if samples and has_classes(data):
        figures["samples"] = sample_figures(product, data, samples, seed)
    return figures


def over_seeds(runs):
    """Figures of several models as one: (mean, standard deviation) of each number.

    Args:
        runs: list of nested dicts of numbers, all alike.

    Returns:
        The one dict, or a dict like it of pairs.
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
        runs: list of dicts of `measured`, one a model.

    Returns:
        list of (heading, note, columns, rows), see `write_page`.
    """
    figures = over_seeds(runs)
    found = []
    for section, values in figures.items():
        if not values:
            found.append((_title(section), "The data set has no labels.", ["value"], []))
        elif section in ("clustering", "samples"):
            found.append((_title(section), _NOTES[section], *_nested(values)))
        else:
            rows = [(_title(name), value) for name, value in values.items()]
            found.append((_title(section), _NOTES[section], ["value"], rows))
    return found


def _nested(values):
    """A dict of dicts as columns and rows; what is no dict comes as a row of one value."""
    inner = {name: v for name, v in values.items() if isinstance(v, dict)}
    columns = list(dict.fromkeys(key for v in inner.values() for key in v))
    rows = [(_title(name), *(v.get(key) for key in columns)) for name, v in inner.items()]
    rows += [(_title(name), v) for name, v in values.items() if not isinstance(v, dict)]
    return [_title(column) for column in columns], rows


def _title(name):
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def write_report(path, product, data, dataset, found, seed=0):
    """A page of the tables, of grids and of each capsule.

    Args:
        path: The .html file.
        product: `ProductOfExpertCapsules`.
        data: `ImageData`.
        dataset: str.
        found: list of tables, of `tables`.
        seed: int.

    Raises:
        RunFailed: If it cannot be written.
    """
    test = data.test
    codes = map_batches(product.encode, test.images)
    capsules = capsule_meaning(codes["probabilities"], test.labels)
    columns = capsule_grid(product, rows=SHOWN // 2, domain="visited", seed=seed)
    for meaning in capsules:
        capsule = meaning["capsule"]
        meaning["class_names"] = test.class_names
        meaning["images"] = to_pixels(test.images[meaning["top"]])
        meaning["samples"] = np.stack([row[capsule] for row in columns])
        meaning["traversal"] = traversals(product, codes["capsules"], capsule)
    shown = to_pixels(test.images[:SHOWN])
    joint = joint_arrays(product, 4 * SHOWN, seed)["images"]
    pictures = [
        (
            "Single capsules",
            "Each column one capsule drawn from a plain Gaussian, all others zero.",
            capsule_grid(product, 4, "complete", seed),
        ),
        (
            "Single capsules, where training took them",
            "The same, drawn from what training visited.",
            columns[:4],
        ),
        (
            "All capsules",
            "Whole codes, drawn from the mixture fitted to those of training.",
            list(joint.reshape(4, SHOWN, *joint.shape[1:])),
        ),
        (
            "Reconstructions",
            "Test images; the autoencoder; one divergence step; the whole code.",
            reconstruction_grid(product, shown),
        ),
    ]
    write_page(path, f"Products of expert capsules: {dataset}", found, pictures, capsules)
