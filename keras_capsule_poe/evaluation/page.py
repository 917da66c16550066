"""The report page of a model: tables, samples, reconstructions and capsules."""

from collections import Counter
from pathlib import Path

import numpy as np
from keras import ops

from keras_capsule_poe import templates
from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.baselines import FeatureBaseline
from keras_capsule_poe.evaluation.classification import (
    calibration_metrics,
    classified,
    measure_of,
    shows_several,
    worst_images,
)
from keras_capsule_poe.evaluation.generative import chosen_images, draws
from keras_capsule_poe.evaluation.report import cells, is_generative, is_labelled_classifier
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.pictures import GAP, chart_pixels
from keras_capsule_poe.models.base.protocols import is_classifier
from keras_capsule_poe.plotting import (
    as_words,
    class_words,
    embedded,
    moved_capsule,
    named_rows,
    reconstruction_rows,
    row_names,
    sample_rows,
)

SHOWN, ROWS, MISTAKEN = 20, 4, 10
BASELINE_IMAGES = 4_000
# Number of samples shown for each capsule, and of its moves and their steps.
CAPSULE_ROWS, MOVES, STEPS = 10, 16, 9


def write_report(
    path, model, data, dataset, tables, seed=0, found=None, history=(), facts=(), summary=()
):
    """Write the page with the tables and the pictures that the kind of model allows.

    `summary` holds sentences, to which that on the classes of capsules is added.
    """
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
        caption = "What was measured after each epoch of training, on training and held-out images."
        pictures.append(("Training", caption, _chart_rows(history_chart(history))))
    summary = " ".join([*summary, *_purity(capsules)])
    write_page(path, f"{model.TITLE}: {dataset}", tables, pictures, capsules, facts, summary)


# Magnification of the image that a slider moves.
_SCALE = 4


def write_page(path, title, tables, pictures, capsules, facts=(), summary=""):
    """Write the page atomically. It needs no other file and no network.

    Args:
        path: Path of the HTML file.
        title: String.
        tables: List of (heading, note, columns, rows).
        pictures: List of (heading, caption, rows of images), maybe followed by the names of the
            rows and of the columns.
        capsules: List of dicts, see `capsule_meaning`.
        facts: List of (name, value) for the header.
        summary: String, the first paragraph.
    """
    headings = [*(["Capsules"] if capsules else []), *(each[0] for each in (*pictures, *tables))]
    # Two parts may have one heading.
    anchors = [f"part-{number}" for number in range(len(headings))]
    own = iter(anchors[bool(capsules) :])
    page = templates.render(
        "page.html",
        title=title,
        summary=summary,
        facts=facts,
        headings=list(zip(anchors, headings)),
        capsules=[_shown_capsule(capsule) for capsule in capsules],
        pictures=[(next(own), *(*each, (), ())[:5]) for each in pictures],
        tables=[(next(own), *each[:2], *_head_and_body(*each[2:])) for each in tables],
        picture=embedded,
    )
    with atomic_write(path, suffix=Path(path).suffix) as temporary:
        # Paths may have bytes that are no text.
        temporary.write_text(page, "utf-8", "backslashreplace")


def _head_and_body(columns, rows):
    header, *body = cells(columns, rows)
    return header, body


def _shown_capsule(capsule):
    """Return a capsule with its pictures and classes as the template shows them."""
    captions = {
        "images": "Test images with the highest probability of this capsule",
        "samples": "Samples from this capsule alone",
    }
    strips = {name: capsule[name] for name in captions if len(capsule.get(name, ()))}
    # A small picture of what the capsule draws, or of an image that it wins.
    thumbnails = [strips[name][:1] for name in ("samples", "images") if name in strips]
    counts = capsule["classes"] or ()
    names = capsule.get("class_names") or range(len(counts))
    frequent = sorted(zip(names, counts), key=lambda pair: -pair[1])
    return {
        **capsule,
        "strips": [(images, captions[name]) for name, images in strips.items()],
        "thumbnail": next(iter(thumbnails), None),
        "frequent": [(name, count) for name, count in frequent if count],
        "moved": _slider(capsule) if len(capsule.get("traversal", ())) else None,
    }


def _slider(capsule):
    """Return the strip of a capsule's moves, and the places of its images on it."""
    rows = capsule["traversal"]
    # Magnified by the browser.
    strip = embedded(list(rows), magnify=1)
    width, height, gap = (_SCALE * size for size in (strip["width"], strip["height"], GAP))
    # Pixels from one image of the strip to the next one.
    x, y = (width - gap) / len(rows[0]), (height - gap) / len(rows)
    return {
        **strip,
        "width": width,
        "height": height,
        "gap": gap,
        "x": f"{x:g}",
        "y": f"{y:g}",
        "one": f"width:{x - gap:.0f}px;height:{y - gap:.0f}px",
        "steps": len(rows[0]),
        "names": capsule["moves"],
    }


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
    return "Reconstructions", f"Test images.{words}", list(rows.values()), row_names(rows), ()


def _mistaken_pictures(found, test):
    """Return a picture of wrong images, the most confident first, with one row per class."""
    several = shows_several(test)
    wrong, labels, named = worst_images(found, test.labels, SHOWN if several else len(test))
    if not len(wrong):
        return []
    labels, named = (class_words(each, test.class_names) for each in (labels, named))
    pairs, names = [f"{label} as {name}" for label, name in zip(labels, named)], ()
    if several:
        rows = [range(len(wrong))]
        caption = f"Test images with a wrong class, the surest first: {', '.join(pairs)}."
    else:
        # A row for each pair of classes.
        often = Counter(pairs).most_common()
        rows = [[k for k, each in enumerate(pairs) if each == pair] for pair, _ in often]
        names = [f"{pair} ({number})" for pair, number in often[:MISTAKEN]]
        rest = f" {len(often) - MISTAKEN} rarer mistakes are left out." if often[MISTAKEN:] else ""
        caption = (
            "Test images taken for another class: label, answer and number of images. The surest "
            f"come first.{rest}"
        )
    shown = [to_pixels(test.images[wrong[row[:SHOWN]]]) for row in rows[:MISTAKEN]]
    return [("Mistaken", caption, shown, names)]


def _reliability_picture(model, found, test):
    measure = measure_of(model)
    table = calibration_metrics(found["probabilities"], test.labels, measure)["reliability"]
    aim = "as it is trained to be" if measure == "probability" else "which is no aim of the loss"
    caption = (
        f"Bars: share of the test images named rightly, by the largest {measure} of their classes, "
        f"and how many they are. On the line it would be the probability of being right, {aim}."
    )
    return "Reliability diagram", caption, _chart_rows(reliability_chart(table))


def _chart_rows(chart):
    """Return a chart as one row of one image."""
    return [to_pixels(chart_pixels(chart))[None]]


def _capsules(model, test, seed):
    """Return the meaning of each capsule, with its pictures."""
    codes = map_batches(model.encode, test.images)
    labels, names = _classes(test)
    mode, domain = next(iter(draws(model).values()))
    # Samples describe a capsule only if each sample is of one capsule.
    alone = "capsule" in model.draw(1, seed, mode, domain)
    columns = sample_rows(model, CAPSULE_ROWS, seed, mode, domain) if alone else None
    capsules = capsule_meaning(codes["probabilities"], labels)
    for capsule, meaning in enumerate(capsules):
        meaning["class_names"] = names
        meaning["images"] = to_pixels(test.images[meaning["top"]])
        if columns is not None:
            meaning["samples"] = np.stack([row[capsule] for row in columns])
        moved = moved_capsule(model, capsule, None, MOVES, STEPS)
        meaning["traversal"], _, meaning["moves"] = moved
    return capsules


def _classes(images):
    """Return non-negative labels and their names, if there are any."""
    if images.labels is None or images.class_names or images.labels.min() >= 0:
        return images.labels, images.class_names
    values, labels = np.unique(images.labels, return_inverse=True)
    return labels, [str(value) for value in values]


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


def _purity(capsules):
    """Return a sentence on the classes of the images that capsules win, or none."""
    counts = [capsule["classes"] for capsule in capsules if any(capsule["classes"] or ())]
    if not counts or len(capsules) < 2:
        return []
    share = sum(map(max, counts)) / sum(map(sum, counts))
    return [f"Purity {share:.1%}: so many are of the most frequent class of their winning capsule."]


def _counts(labels, chosen):
    labels = np.asarray(labels)
    return np.bincount(labels[chosen].ravel(), minlength=labels.max() + 1).tolist()


# Panel titles, and prefixes of the measurements in each panel.
PANELS = {
    "loss": ("loss", "margin_loss", "class_loss", "val_loss"),
    "accuracy": ("accuracy", "val_accuracy"),
    "mean change of routing logits": ("logit_change",),
}


def _label(metric):
    return metric.replace("val_", "held-out ").replace("_", " ")


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
            panel.plot(epochs, values, marker=".", label=_label(name))
        panel.set(xlabel="epoch", ylabel=title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.legend(fontsize=8, frameon=False)
    return figure


def reliability_chart(table):
    """Return the reliability diagram of `table`, one panel for each kind of confidence."""
    from matplotlib.figure import Figure

    first = next(iter(table.values()))
    kinds = [name.removesuffix("_images") for name in first if name.endswith("_images")]
    figure = Figure(figsize=(4.2 * len(kinds), 4.2), layout="constrained")
    for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds):
        middles = (np.arange(len(table)) + 0.5) / len(table)
        bars = [
            (middle, row[f"{kind}_accuracy"], row[f"{kind}_images"])
            for middle, row in zip(middles, table.values())
            if row[f"{kind}_images"]
        ]
        x, heights, counts = zip(*bars)
        panel.bar(x, heights, width=0.9 / len(table), color="#3a6ea5")
        panel.plot([0, 1], [0, 1], color="#b0452c", linewidth=1.5)
        for place, height, n in zip(x, heights, counts):
            panel.annotate(
                str(n), (place, height), ha="center", va="bottom", rotation=90, fontsize=7
            )
        panel.set(
            xlim=(0, 1),
            ylim=(0, 1.12),
            xlabel="largest " + kind.replace("_", " "),
            ylabel="accuracy",
        )
    return figure
