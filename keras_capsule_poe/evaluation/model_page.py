"""The report page of a model: tables, samples, reconstructions and capsules."""

import numpy as np
from keras import ops

from keras_capsule_poe.core.routing import winners
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.accuracy import (
    classified,
    is_classifier,
    measure_of,
    shows_several,
    worst_of_each,
    worst_pairs,
)
from keras_capsule_poe.evaluation.baselines import FeatureBaseline
from keras_capsule_poe.evaluation.calibration import calibration_metrics, reliability_chart
from keras_capsule_poe.evaluation.metrics import chosen_images
from keras_capsule_poe.evaluation.page import write_page
from keras_capsule_poe.evaluation.report import is_generative, is_labelled_classifier
from keras_capsule_poe.evaluation.sources import draws
from keras_capsule_poe.io.pictures import chart_pixels
from keras_capsule_poe.plotting import (
    NAMES,
    as_words,
    named_rows,
    reconstruction_rows,
    sample_rows,
    traversal,
)
from keras_capsule_poe.sampling import render

# Panel titles, and prefixes of the measurements in each panel.
PANELS = {
    "loss": ("loss", "margin_loss", "class_loss"),
    "accuracy": ("accuracy", "held_out_accuracy"),
    "mean change of routing logits": ("logit_change",),
}


def history_chart(history):
    """Return a figure with a panel each for loss, accuracy and change of routing logits."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    found = {
        title: [name for name in history[-1] if name.startswith(starts)]
        for title, starts in PANELS.items()
    }
    found = {title: names for title, names in found.items() if names}
    figure = Figure(figsize=(4.2 * len(found), 3.4), layout="constrained")
    epochs = range(1, len(history) + 1)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for panel, (title, names) in zip(panels, found.items()):
        for name in names:
            values = [epoch.get(name) for epoch in history]
            panel.plot(epochs, values, marker=".", label=name.replace("_", " "))
        panel.set(xlabel="epoch", ylabel=title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.legend(fontsize=8, frameon=False)
    return figure


def capsule_meaning(probabilities, labels=None, shown=10):
    """Return one dict per capsule: `top` images, `share` of images won, counts of `classes`."""
    probabilities = ops.convert_to_numpy(probabilities)
    winner = winners(probabilities)
    order = np.argsort(-probabilities, axis=0, kind="stable")
    return [
        {
            "capsule": capsule,
            "top": order[:shown, capsule].tolist(),
            "share": float(np.mean(winner == capsule)),
            "classes": None if labels is None else _counts(labels, winner == capsule),
        }
        for capsule in range(probabilities.shape[1])
    ]


def _counts(labels, chosen):
    labels = np.asarray(labels)
    return np.bincount(labels[chosen].ravel(), minlength=labels.max() + 1).tolist()


def mean_traversals(model, codes, rows=16, steps=9, span=0.5):
    """Return traversals (J, rows, steps, H, W, C) around the mean code of the images won.

    Also the dimensions (J, rows) that they move, those that vary most.
    """
    codes = ops.convert_to_numpy(codes)
    winner = winners(codes)
    around, moved = [], []
    for capsule in range(codes.shape[1]):
        won = codes[winner == capsule]
        # A capsule that wins no image uses the image on which it is longest.
        if not len(won):
            won = codes[[np.linalg.norm(codes[:, capsule], axis=-1).argmax()]]
        dimensions = np.argsort(-won[:, capsule].std(axis=0), kind="stable")[:rows]
        mean = won.mean(axis=0)
        # Vectors of all directions have a mean near zero, so restore the mean length.
        if model.CODES == "ball":
            lengths = np.linalg.norm(mean, axis=-1)
            usual = np.linalg.norm(won, axis=-1).mean(axis=0)
            mean *= (usual / np.maximum(lengths, 1e-12))[:, None]
        around.append(traversal(mean, capsule, dimensions, steps, span, model.CODES))
        moved.append(dimensions.tolist())
    around = np.stack(around)
    # Render all at once, because small batches take nearly as long as large ones.
    images = render(model, around.reshape(-1, *codes.shape[1:]))
    return images.reshape(*around.shape[:3], *images.shape[1:]), moved


SHOWN, ROWS, MISTAKEN = 20, 4, 10
BASELINE_IMAGES = 4_000
# Number of samples shown for each capsule.
CAPSULE_ROWS = 10


def write_report(path, model, data, dataset, tables, seed=0, found=None, history=(), facts=()):
    """Write the page with the tables and the pictures that the kind of model allows."""
    pictures, capsules = [], []
    if is_generative(model):
        pictures = [*_sample_pictures(model, seed), *_baseline_pictures(model, data, seed)]
        pictures.append(_reconstruction_picture(model, data.test))
        capsules = _capsules(model, data.test, seed)
    elif "reconstruct" in model.ENDPOINTS:
        pictures.append(_reconstruction_picture(model, data.test))
    if is_labelled_classifier(model, data.test):
        found = classified(model, data.test) if found is None else found
        pictures += _mistaken_pictures(found, data.test)
        pictures.append(_reliability_picture(model, found, data.test))
    if history:
        pictures.append(_history_picture(history))
    write_page(path, f"{model.TITLE}: {dataset}", tables, pictures, capsules, facts)


def _sample_pictures(model, seed):
    found = []
    for mode, domain in draws(model).values():
        about = model.modes[mode]
        rows = sample_rows(model, ROWS, seed, mode, domain)
        one_each = mode == "single" and len(rows[0]) == model.capsules
        names = ((), range(model.capsules)) if one_each else ()
        heading = f"Samples: {mode}" + (f", {domain}" if domain else "")
        caption = f"{about.note} {about.domain_notes.get(domain, '')}".strip()
        found.append((heading, caption, rows, *names))
    return found


def _baseline_pictures(model, data, seed):
    """Return a picture of test images and of a mixture of Gaussians over the same features."""
    if not hasattr(model, "autoencoder") or len(data.train) < 2:
        return []
    images = data.train.images[chosen_images(data, seed)[:BASELINE_IMAGES]]
    features = map_batches(model.to_features, images)
    mixture = FeatureBaseline("gaussian_mixture", rank=100, components=20, seed=seed)
    drawn = mixture.fit(features.reshape(len(features), -1)).sample(SHOWN, seed)
    drawn = map_batches(model.from_features, drawn.reshape(-1, *features.shape[1:]))
    caption = (
        f"For comparison: test images, and draws of a mixture of 20 Gaussians that was fitted to "
        f"the autoencoder's features of {len(images):,} training images."
    )
    rows = [to_pixels(data.test.images[:SHOWN]), drawn]
    return [("Baseline", caption, rows, ("test images", "Gaussians"), ())]


def _reconstruction_picture(model, test):
    shown, words = test.head(SHOWN), ""
    if is_classifier(model) and shown.labels is not None and not is_generative(model):
        classes, rows = named_rows(model, shown)
        taken_for = ", ".join(as_words(shown.labels, classes, shown.class_names))
        words = f" Labels, and what they are taken for: {taken_for}."
    else:
        rows = reconstruction_rows(model, shown.images)
    names = [NAMES.get(name, name.replace("_", " ")) for name in rows]
    return "Reconstructions", f"Test images.{words}", list(rows.values()), names, ()


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
    table = calibration_metrics(found["probabilities"], test.labels, measure)["reliability"]
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
    traversals, moved = mean_traversals(model, codes["capsules"])
    capsules = capsule_meaning(codes["probabilities"], labels)
    for meaning in capsules:
        capsule = meaning["capsule"]
        meaning["class_names"] = names
        meaning["images"] = to_pixels(test.images[meaning["top"]])
        if columns is not None:
            meaning["samples"] = np.stack([row[capsule] for row in columns])
        meaning["traversal"], meaning["dimensions"] = traversals[capsule], moved[capsule]
    return capsules


def _classes(images):
    """Return non-negative labels and their names, if there are any."""
    if images.labels is None or images.class_names or images.labels.min() >= 0:
        return images.labels, images.class_names
    values, labels = np.unique(images.labels, return_inverse=True)
    return labels, [str(value) for value in values]
