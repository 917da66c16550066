"""Calibration of a classifier's confidence."""

import numpy as np

from keras_capsule_poe.core.routing import are_among, longest

BINS = 15


def calibration_metrics(lengths, labels, measure="length"):
    """Return calibration metrics of the longest capsules, also normalised to sum to one."""
    named = labels.reshape(len(labels), -1)
    is_right = are_among(longest(lengths, named.shape[1]), named)
    kinds = {measure: _longest(lengths, named.shape[1])}
    # The margin loss does not train lengths to be probabilities, so show normalised ones too.
    if named.shape[1] == 1 and measure != "probability":
        total = np.maximum(lengths.sum(axis=1, keepdims=True, dtype="float64"), 1e-300)
        kinds[f"normalised_{measure}"] = _longest(lengths / total, 1)
    figures, table = {}, {}
    for kind, confidence in kinds.items():
        found = reliability(confidence.ravel(), is_right.ravel())
        for bin, numbers in found.pop("bins").items():
            row = table.setdefault(bin, {})
            row.update({f"{kind}_{name}": value for name, value in numbers.items()})
        figures[kind] = found
    return {"calibration": figures, "reliability": table}


def reliability(confidence, is_right, bins=BINS):
    """Return the expected calibration error and its bins (Guo et al., 2017, eq. 3)."""
    confidence = np.asarray(confidence, "float64")
    is_right = np.asarray(is_right, "float64")
    edges = np.linspace(0, 1, bins + 1)
    # A bin includes its upper edge only.
    which = np.searchsorted(edges[1:-1], confidence)
    counts = np.bincount(which, minlength=bins)
    sums, rights = (np.bincount(which, of, minlength=bins) for of in (confidence, is_right))
    found = {}
    for low, high, n, total, right in zip(edges, edges[1:], counts, sums, rights):
        means = (float(total / n), float(right / n)) if n else (None, None)
        found[f"{low:.2f}-{high:.2f}"] = {
            "images": int(n),
            **dict(zip(("confidence", "accuracy"), means)),
        }
    return {
        "error": float(np.abs(rights - sums).sum() / len(confidence)),
        "confidence": float(confidence.mean()),
        "accuracy": float(is_right.mean()),
        "bins": found,
    }


def reliability_chart(table):
    """Return the reliability diagram of `table`, one panel for each kind of confidence."""
    from matplotlib.figure import Figure

    first = next(iter(table.values()))
    kinds = [name.removesuffix("_images") for name in first if name.endswith("_images")]
    figure = Figure(figsize=(4.2 * len(kinds), 4.2), layout="constrained")
    for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds):
        rows = list(table.values())
        middles = (np.arange(len(rows)) + 0.5) / len(rows)
        filled = [m for m, row in enumerate(rows) if row[f"{kind}_images"]]
        share = [rows[m][f"{kind}_images"] for m in filled]
        panel.bar(
            middles[filled],
            [rows[m][f"{kind}_accuracy"] for m in filled],
            width=0.9 / len(rows),
            color="#3a6ea5",
        )
        panel.plot([0, 1], [0, 1], color="#b0452c", linewidth=1.5)
        for m, n in zip(filled, share):
            height = rows[m][f"{kind}_accuracy"]
            panel.annotate(
                str(n), (middles[m], height), ha="center", va="bottom", rotation=90, fontsize=7
            )
        panel.set(
            xlim=(0, 1),
            ylim=(0, 1.12),
            xlabel="largest " + kind.replace("_", " "),
            ylabel="accuracy",
        )
    return figure


def _longest(lengths, n):
    return np.take_along_axis(lengths, longest(lengths, n), axis=1)
