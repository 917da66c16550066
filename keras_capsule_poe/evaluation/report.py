"""All metrics that a model allows, and tables of them."""

import contextlib
import math
import numbers
import textwrap

from keras_capsule_poe import templates
from keras_capsule_poe.evaluation.baselines import baseline_set
from keras_capsule_poe.evaluation.classification import (
    calibration_metrics,
    classification_metrics,
    classified,
    has_views,
    logit_changes,
    measure_of,
    pair_metrics,
    shows_several,
    view_metrics,
)
from keras_capsule_poe.evaluation.generative import (
    COMPARED,
    evaluate,
    has_signs,
    reconstruction_errors,
    sample_metrics,
    sign_metrics,
    silent,
)
from keras_capsule_poe.evaluation.scores import has_classes
from keras_capsule_poe.models.base.protocols import is_classifier

# Characters of a line of a column's name.
_NAME = 16
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
    baselines="none",
    progress=silent,
):
    """Return all metrics that a model allows: of its samples, its predictions or both.

    `progress` is called with a text at each step.
    """
    metrics = {}
    if is_generative(model):
        with getattr(model, "fast", contextlib.nullcontext)():
            compared = {"baselines": baselines, "vae_seconds": vae_seconds}
            metrics |= _generative_metrics(
                model, data, samples, probe_images, seed, compared, progress
            )
    if is_labelled_classifier(model, data.test):
        progress("classifying test images")
        found = classified(model, data.test) if found is None else found
        if has_views(data.test):
            metrics["views"] = view_metrics(found, data.test)
        measured = pair_metrics if shows_several(data.test) else classification_metrics
        metrics |= measured(found, data.test)
        said = found["probabilities"]
        metrics |= calibration_metrics(said, data.test.labels, measure_of(model))
    if is_classifier(model) and getattr(model, "routing_iterations", 1) > 1:
        metrics["logit_changes"] = logit_changes(model, data.test.images)
    return metrics


def _generative_metrics(model, data, samples, probe_images, seed, compared, progress):
    """Return `evaluate`, `signs` and `samples`, with images encoded and decoded only once."""
    # Check the arguments before the slow part.
    baseline_set(model=model, **compared)
    shared = {}
    progress("reconstructing test images")
    kept = min(samples, len(data.train)) if has_classes(data) else 0
    reconstruction, decoded = reconstruction_errors(model, data.test.images, kept)
    options = {"seed": seed, "reconstruction": reconstruction, "kept": shared}
    options["progress"] = progress
    metrics = evaluate(model, data, probe_images, **options)
    if has_signs(model):
        progress("free energies of negatives")
        metrics["signs"] = sign_metrics(model, data, min(samples, COMPARED), seed)
    if kept:
        options = {"decoded": decoded, "progress": progress, **shared, **compared}
        metrics["samples"] = sample_metrics(model, data, samples, seed, **options)
    return metrics


def tables(metrics):
    """Return the metrics of a model as tables (heading, note, columns, rows)."""
    notes, row_notes = (templates.words("tables.toml")[name] for name in ("notes", "row_notes"))
    found = []
    for section, values in metrics.items():
        if not values:
            found.append((title(section), "Needs one label per image.", ["value"], []))
        elif any(isinstance(value, dict) for value in values.values()):
            titles = (str if section in named else title for named in (_NAMED_ROWS, _NAMED_COLUMNS))
            more = [text for row, text in row_notes.items() if row in values]
            note = " ".join([notes[section], *more])
            found.append((title(section), note, *_nested(values, *titles)))
        else:
            rows = [(title(name), value) for name, value in values.items()]
            found.append((title(section), notes[section], ["value"], rows))
    return found


def _nested(values, row_title, column_title):
    """Return columns and rows of a dict of dicts, other values as rows of one value."""
    inner = {name: v for name, v in values.items() if isinstance(v, dict) and not _is_empty(v)}
    columns = list(dict.fromkeys(key for v in inner.values() for key in v))
    rows = [(row_title(name), *(v.get(key) for key in columns)) for name, v in inner.items()]
    rows += [(row_title(name), v) for name, v in values.items() if not isinstance(v, dict)]
    return [column_title(column) for column in columns], rows


def _is_empty(values):
    """Return whether a row says nothing, such as that of confidences that no image has."""
    return None in values.values() and not any(values.values())


def title(name):
    """Return the heading of a section or a metric."""
    text = name.replace("_", " ")
    return templates.words("tables.toml")["titles"].get(name, text[:1].upper() + text[1:])


def cell(value):
    """Return a value as text: floats with three digits, pairs as mean ± deviation, None as -."""
    if value is None:
        return "-"
    if isinstance(value, (tuple, list)):
        mean, deviation = value
        return f"{cell(mean)} ± {cell(deviation)}"
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return _three_digits(float(value))
    return str(value)


def _three_digits(value):
    text = f"{value:#.3g}"
    # Plain digits are easier to read than a power of ten.
    if math.isfinite(value) and 1e3 <= abs(float(text)) < 1e6:
        text = f"{float(text):.0f}"
    return text.removesuffix(".")


def cells(columns, rows):
    """Return a table as a list of rows of text, header first and missing values as `-`."""
    for row in rows:
        if len(row) > len(columns) + 1:
            raise ValueError(f"A row has at most {len(columns)} values. Received: {tuple(row)}")
    padded = ((*row, *[None] * (len(columns) + 1 - len(row))) for row in rows)
    return [["", *columns], *([cell(value) for value in row] for row in padded)]


def text_table(columns, rows, width=80):
    """Return a table as aligned plain text, in parts of at most so many characters a line."""
    body = cells(columns, rows)[1:]
    return "\n\n".join("\n".join(part) for part in blocks(columns, body, width))


def blocks(names, rows, width):
    """Yield the lines of tables of as many columns as fit into the width, at least one.

    A row is a name and a text for each column, or the name of a heading alone.
    """
    names = [textwrap.wrap(name.replace(",", ", "), _NAME) or [name] for name in names]
    first = max((len(row[0]) for row in rows if len(row) > 1), default=0)
    cells = [[row[1 + i] for row in rows if len(row) > 1] for i in range(len(names))]
    widths = [max(map(len, [*name, *column])) for name, column in zip(names, cells)]
    start = 0
    while start < len(names):
        end = start + 1
        while end < len(names) and first + sum(w + 2 for w in widths[start : end + 1]) <= width:
            end += 1
        some = range(start, end)
        height = max(len(names[i]) for i in some)
        heads = [[""] * (height - len(names[i])) + names[i] for i in some]
        table = [("", *line) for line in zip(*heads)]
        table += [(row[0], *(row[1 + i] for i in some)) if row[1:] else row for row in rows]
        yield [_line(row, first, [widths[i] for i in some]) for row in table]
        start = end


def _line(row, first, widths):
    texts = [row[0].ljust(first), *(f"  {text:>{width}}" for text, width in zip(row[1:], widths))]
    return "".join(texts).rstrip()
