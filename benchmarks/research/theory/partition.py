"""log Z of small products of expert capsules with discrete visible capsules."""

import numpy as np
from keras import ops
from scipy.special import logsumexp

from keras_capsule_poe.core.units import CAPSULES, free_energy

MOST_STATES = 1_000_000


def exact_log_partition(kernel, coefficients, values, units=CAPSULES, hidden_bias=None):
    """Return log Z in nats by enumeration of all S^I states of I capsules with S values."""
    votes = _votes(kernel, coefficients, values)
    inputs, states = votes.shape[:2]
    if states**inputs > MOST_STATES:
        raise ValueError(
            f"At most {MOST_STATES} states are enumerated. Received: {states} values of each of "
            f"{inputs} visible capsules; `functions.annealed_importance` estimates larger models"
        )
    z = np.zeros((1, *votes.shape[2:])) + (0.0 if hidden_bias is None else hidden_bias)
    for vote in votes:
        z = (z[:, None] + vote).reshape(-1, *z.shape[1:])
    return float(logsumexp(-ops.convert_to_numpy(free_energy(z, units))))


def _votes(kernel, coefficients, values):
    """Return the votes c_ij W_ij v (I, S, J, E) of every visible capsule and value."""
    kernel, coefficients, values = (
        np.asarray(a, "float64") for a in (kernel, coefficients, values)
    )
    if (
        kernel.ndim != 4
        or coefficients.shape != kernel.shape[:2]
        or values.ndim != 2
        or values.shape[1] != kernel.shape[3]
    ):
        raise ValueError(
            "`kernel` (I, J, E, D), `coefficients` (I, J) and `values` (S, D) must fit. "
            f"Received: shapes {kernel.shape}, {coefficients.shape} and {values.shape}"
        )
    return np.einsum("ij,ijed,sd->isje", coefficients, kernel, values)
