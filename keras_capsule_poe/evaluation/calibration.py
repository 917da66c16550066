"""How far what a classifier says of a class may be read as the probability of being right."""

import numpy as np

from keras_capsule_poe.functions.winners import are_among, longest

BINS = 15


def calibration_figures(lengths, labels, measure="length"):
    """Calibration of the longest capsules, as they are and normalised to sum one.

    The margin loss trains lengths towards 0.9 and 0.1 and no further: they are no probabilities
    of a softmax, and nothing but these figures says how often a length of 0.8 is right.

    Args:
        lengths: Array (N, J), probabilities of a classifier.
        labels: Integer array (N,); or (N, T), of which the T longest capsules are judged, each on
            its own, as they are only.
        measure: str, what these numbers are, a classifier's `MEASURE`; a `"probability"` sums to
            one as it is.

    Returns:
        dict: `calibration`, of the measure, `length`, and of `normalised_length` the `reliability`
        without its bins; and `reliability`, by bin the numbers of both.

    Examples:

    >>> found = calibration_figures(np.array([[0.9, 0.1], [0.7, 0.6]]), np.array([0, 1]))
    >>> round(found["calibration"]["length"]["error"], 3)  # (0.1 + 0.7) / 2
    0.4
    """
    named = labels.reshape(len(labels), -1)
    is_right = are_among(longest(lengths, named.shape[1]), named)
    kinds = {measure: _longest(lengths, named.shape[1])}
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
    """Confidence against the share that is right, in bins of equal width.

    Args:
        confidence: Array (N,), in [0, 1].
        is_right: Boolean array (N,).
        bins: int, M; bin m holds what is above (m - 1)/M and at most m/M.

    Returns:
        dict: `error`, the expected calibration error, sum over bins of n_m/N |accuracy_m -
        confidence_m|; `confidence` and `accuracy`, means over all; and `bins`, by their limits
        dicts of `images` (n_m), and the means `confidence` and `accuracy`, None where there are
        none.

    Examples:

    >>> found = reliability(np.array([0.2, 0.9, 1.0]), np.array([False, True, False]), bins=2)
    >>> round(found["error"], 3), found["bins"]["0.00-0.50"]["accuracy"]
    (0.367, 0.0)

    Reference:

    - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), Equation 3
    """
    confidence = np.asarray(confidence, "float64")
    is_right = np.asarray(is_right, "float64")
    edges = np.linspace(0, 1, bins + 1)
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
    """The reliability diagram: in each bin what share is right, beside the length itself.

    Args:
        table: dict, `reliability` of `calibration_figures`.

    Returns:
        matplotlib `Figure`, a panel for each kind of confidence.
    """
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
            ylabel="share named rightly",
        )
    return figure


def _longest(lengths, n):
    return np.take_along_axis(lengths, longest(lengths, n), axis=1)
