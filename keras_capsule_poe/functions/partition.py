"""The partition function of a small product of expert capsules: exact, and by annealing.

With fixed routing coefficients c, and visible capsules v_i of finitely many values,
p(v) = exp(-F(v)) / Z with z_j = sum_i c_ij W_ij v_i. Capsules have exp(-F) = prod_j (1 + |z_j|^2).
"""

import numpy as np
from keras import ops
from scipy.special import logsumexp

from keras_capsule_poe.functions.units import CAPSULES

MOST_STATES = 1_000_000


def exact_log_partition(kernel, coefficients, values, units=CAPSULES):
    """log Z by enumeration of all S^I states.

    Args:
        kernel: Array (I, J, E, D), the maps W_ij.
        coefficients: Array (I, J), the routing coefficients c_ij.
        values: Array (S, D), what each visible capsule may be.
        units: The experts' units, see `functions.units`.

    Returns:
        float, nats.

    Raises:
        ValueError: If the shapes do not fit, or there are more than 1,000,000 states.
    """
    votes = _votes(kernel, coefficients, values)
    inputs, states = votes.shape[:2]
    if states**inputs > MOST_STATES:
        raise ValueError(
            f"At most {MOST_STATES} states are enumerated. Received: {states} values of each of "
            f"{inputs} visible capsules; `annealed_log_partition` estimates larger models"
        )
    z = np.zeros((1, *votes.shape[2:]))
    for vote in votes:
        z = (z[:, None] + vote).reshape(-1, *z.shape[1:])
    return float(logsumexp(_log_weight(z, units)))


def annealed_log_partition(
    kernel, coefficients, values, chains=1000, temperatures=100, seed=0, units=CAPSULES
):
    """log Z by annealed importance sampling, from the uniform to the model's distribution.

    Each chain starts uniformly, where log Z_0 = I log S, and goes through p_b(v) proportional
    to exp(-b F(v)) for b up to one, a sweep of Gibbs sampling at each.

    Args:
        kernel: Array (I, J, E, D), the maps W_ij.
        coefficients: Array (I, J), the routing coefficients c_ij.
        values: Array (S, D), what each visible capsule may be.
        chains: int, two or more.
        temperatures: int, steps of b; one: plain importance sampling.
        seed: int.
        units: The experts' units, see `functions.units`.

    Returns:
        float estimate, float standard error, nats.

    Raises:
        ValueError: If the shapes do not fit, or `chains` or `temperatures` is too small.

    Reference:

    - [Neal, 2001](https://arxiv.org/abs/physics/9803008)
    - [Salakhutdinov & Murray, 2008](https://doi.org/10.1145/1390156.1390266)
    """
    if chains < 2 or temperatures < 1:
        raise ValueError(
            "`chains` must be two or more and `temperatures` one or more. "
            f"Received: chains={chains}, temperatures={temperatures}"
        )
    votes = _votes(kernel, coefficients, values)
    inputs, states = votes.shape[:2]
    random = np.random.default_rng(seed)
    state = random.integers(states, size=(chains, inputs))
    z = votes[np.arange(inputs), state].sum(axis=1)
    log_weights = np.zeros(chains)
    for step in range(temperatures):
        log_weights += _log_weight(z, units) / temperatures
        z = _gibbs_sweep(z, state, votes, (step + 1) / temperatures, random, units)
    estimate = inputs * np.log(states) + logsumexp(log_weights) - np.log(chains)
    weights = np.exp(log_weights - log_weights.max())
    # The delta method: a small error of log x is the error of x over x.
    error = weights.std(ddof=1) / (np.sqrt(chains) * weights.mean())
    return float(estimate), float(error)


def _gibbs_sweep(z, state, votes, b, random, units):
    """Draws each visible capsule of p_b, given the others, in place; returns its z, (B, J, E)."""
    for i, vote in enumerate(votes):
        others = z - vote[state[:, i]]
        log_odds = b * _log_weight(others[:, None] + vote, units)
        # The largest of log p + Gumbel noise is a draw of p.
        state[:, i] = np.argmax(log_odds + random.gumbel(size=log_odds.shape), axis=1)
        z = others + vote[state[:, i]]
    return z


def _log_weight(z, units):
    """-F, the sum over the experts, of z (..., J, E)."""
    return -ops.convert_to_numpy(units.free_energy(z)).sum(axis=-1)


def _votes(kernel, coefficients, values):
    """c_ij W_ij v of every visible capsule and value, (I, S, J, E)."""
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
