"""Results of a training in words, from the metrics of its stages."""


def explained(error, what):
    """Return a sentence on a relative error, or none.

    >>> explained(0.15, "Whole codes")
    ['Whole codes explain 85% of the variance of held-out images.']
    """
    if error is None:
        return []
    return [f"{what} explain {max(0.0, 1 - error):.0%} of the variance of held-out images."]


def usage(won):
    """Return a sentence on the shares of the images that capsules win, or none."""
    if not won:
        return []
    used = sum(share > 0 for share in won)
    return [f"{used} of {len(won)} capsules win images, the most frequent one {max(won):.0%}."]


def classes(found):
    """Return a sentence on the classes of the images that capsules win, or none."""
    if "class_coverage" not in found:
        return []
    return [
        f"{found['class_coverage']} of {found['classes']} classes are the most frequent class of "
        f"a capsule. {found['purity']:.0%} of a capsule's images are of one class on average."
    ]


def accuracy(stages):
    """Return a sentence on the held-out accuracy of a classifier, or none."""
    found = [metrics["held_out_accuracy"] for metrics in stages.values() if _has(metrics)]
    return [f"{value:.1%} of the held-out images are classified correctly." for value in found]


def _has(metrics):
    return metrics.get("held_out_accuracy") is not None
