"""What a model of the paper's two data sets should reach, and whether it does."""

RECOGNISED = "single-capsule samples recognised, {}"
# (what, how it is taken from the figures, "least" or "most", Fashion-MNIST, MNIST)
_TARGETS = (
    (
        RECOGNISED.format("visited"),
        lambda f: f["samples"]["visited"]["recognised"],
        "least",
        0.5,
        0.85,
    ),
    (
        RECOGNISED.format("complete"),
        lambda f: f["samples"]["complete"]["recognised"],
        "least",
        0.25,
        0.5,
    ),
    (
        "different modal classes of columns, visited",
        lambda f: f["samples"]["visited"]["modal_classes"],
        "least",
        8,
        8,
    ),
    (
        "mean purity of a column, visited",
        lambda f: f["samples"]["visited"]["purity"],
        "least",
        0.8,
        0.8,
    ),
    (
        "mean purity of a column, complete",
        lambda f: f["samples"]["complete"]["purity"],
        "least",
        0.8,
        0.8,
    ),
    (
        "coverage, visited, of that of real images",
        lambda f: _ratio(f, "coverage", "visited", "real"),
        "least",
        0.4,
        0.4,
    ),
    (
        "Frechet distance, visited over full Gaussian",
        lambda f: _ratio(f, "frechet", "visited", "full_gaussian"),
        "most",
        1.0,
        0.5,
    ),
    (
        "Frechet distance, joint over Gaussian mixture",
        lambda f: _ratio(f, "frechet", "joint", "gaussian_mixture"),
        "most",
        1.0,
        1.0,
    ),
    (
        "linear probe of capsules, over raw pixels",
        lambda f: f["probe"]["capsules"] - f["probe"]["pixels"],
        "least",
        0.01,
        None,
    ),
    ("linear probe of capsules", lambda f: f["probe"]["capsules"], "least", None, 0.968),
    (
        "clustering by merged capsules, accuracy",
        lambda f: f["clustering"]["merged_capsules"]["accuracy"],
        "least",
        0.61,
        0.88,
    ),
    (
        "clustering by merged capsules, NMI",
        lambda f: f["clustering"]["merged_capsules"]["nmi"],
        "least",
        0.64,
        0.81,
    ),
    (
        "relative error of primary capsules, whole code",
        lambda f: f["reconstruction"]["primary_capsules"],
        "most",
        0.15,
        0.15,
    ),
)
_DATASETS = ("fashion_mnist", "mnist")


def target_rows(dataset, figures):
    """One row for each target of a data set.

    Args:
        dataset: str.
        figures: dict of `evaluate`, with `sample_figures` under `samples`.

    Returns:
        list of (what, measured, target as text, "yes" or "no"); empty for other data sets.
    """
    if dataset not in _DATASETS:
        return []
    rows = []
    for what, value, side, *targets in _TARGETS:
        target = targets[_DATASETS.index(dataset)]
        if target is None:
            continue
        measured = value(figures)
        met = measured >= target if side == "least" else measured <= target
        rows.append((what, measured, f"at {side} {target:g}", "yes" if met else "no"))
    return rows


def _ratio(figures, name, of, over):
    return figures["samples"][of][name] / figures["samples"][over][name]
