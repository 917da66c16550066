"""Whether one classifier is better than another on the same images."""

import numpy as np
from scipy.stats import binomtest


def mcnemar(this_right, other_right):
    """McNemar's exact test, two-sided, of who was right about the same images.

    Args:
        this_right, other_right: Boolean arrays (N,), see `are_right`.

    Returns:
        dict: `only_this_right` and `only_other_right`, numbers of images; `p`, the probability of
        numbers at least as unequal if both were equally good.

    Examples:

    >>> mcnemar(np.array([True] * 9), np.array([False] * 8 + [True]))["p"]
    0.0078125

    Reference:

    - [McNemar, 1947](https://doi.org/10.1007/BF02295996)
    """
    only_this = int(np.sum(this_right & ~other_right))
    only_other = int(np.sum(other_right & ~this_right))
    unequal = only_this + only_other
    p = float(binomtest(only_this, unequal).pvalue) if unequal else 1.0
    return {"only_this_right": only_this, "only_other_right": only_other, "p": p}
