"""McNemar's test of two classifiers on the same images."""

import numpy as np
from scipy.stats import binomtest


def mcnemar(this_right, other_right):
    """Return McNemar's exact two-sided test of two Boolean arrays (N,) of correct predictions."""
    only_this = int(np.sum(this_right & ~other_right))
    only_other = int(np.sum(other_right & ~this_right))
    unequal = only_this + only_other
    p = float(binomtest(only_this, unequal).pvalue) if unequal else 1.0
    return {"only_this_right": only_this, "only_other_right": only_other, "p": p}
