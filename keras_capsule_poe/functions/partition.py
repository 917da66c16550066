"""The partition function of a small product of expert capsules: exact, and by annealing.

With fixed routing coefficients c, and visible capsules v_i of finitely many values,
p(v) = exp(-F(v)) / Z with z_j = b_j + sum_i c_ij W_ij v_i. For capsules exp(-F) is
prod_j (1 + |z_j|^2).
"""

from functools import lru_cache

import keras
import numpy as np
from keras import ops
from scipy.special import logsumexp

from keras_capsule_poe.functions.annealing import anneal, linear_gain, log_mean
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.functions.randomness import StatelessSeed, split
from keras_capsule_poe.functions.units import CAPSULES, free_energy

MOST_STATES = 1_000_000


def exact_log_partition(kernel, coefficients, values, units=CAPSULES, hidden_bias=None):
    """log Z by enumeration of all S^I states.

    Args:
        kernel: Array (I, J, E, D), the maps W_ij.
        coefficients: Array (I, J), the routing coefficients c_ij.
        values: Array (S, D), what each visible capsule may be.
        units: The experts' units, see `functions.units`.
        hidden_bias: Array (J, E), b; or None.

    Returns:
        float, nats.

    Raises:
        ValueError: If the shapes do not fit, or there are more than 1,000,000 states.

    Examples:

    >>> kernel, values = np.zeros((3, 2, 4, 2)), np.eye(2)
    >>> bool(np.isclose(exact_log_partition(kernel, np.ones((3, 2)), values), 3 * np.log(2)))
    True
    """
    votes = _votes(kernel, coefficients, values)
    inputs, states = votes.shape[:2]
    if states**inputs > MOST_STATES:
        raise ValueError(
            f"At most {MOST_STATES} states are enumerated. Received: {states} values of each of "
            f"{inputs} visible capsules; `annealed_log_partition` estimates larger models"
        )
    z = np.zeros((1, *votes.shape[2:])) + (0.0 if hidden_bias is None else hidden_bias)
    for vote in votes:
        z = (z[:, None] + vote).reshape(-1, *z.shape[1:])
    return float(logsumexp(-ops.convert_to_numpy(free_energy(z, units))))


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

    Examples:

    >>> kernel, values = np.zeros((3, 2, 4, 2)), np.eye(2)
    >>> found, error = annealed_log_partition(kernel, np.ones((3, 2)), values, chains=10)
    >>> bool(np.isclose(found, 3 * np.log(2))), error
    (True, 0.0)

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
    betas = np.linspace(0, 1, temperatures + 1)
    index = np.random.default_rng(seed).integers(states, size=(inputs, chains))
    tensors = [ops.convert_to_tensor(array) for array in (votes, index, betas)]
    log_weights, *_ = _discrete(units)(*tensors, split(seed, temperatures))
    found = log_mean(log_weights)
    return float(inputs * np.log(states)) + found.value, found.error


@lru_cache(maxsize=8)
def _discrete(units):
    """Annealing of discrete capsules: states are which values, (I, N), and z, (J, E, N).

    The chains come last: sums over few experts of few dimensions are then of long rows.
    """

    def log_weight(z):
        return -ops.sum(units.free_energy(z, axis=1), axis=0)

    def run(votes, index, betas, seeds):
        inputs = ops.shape(votes)[0]
        votes = ops.transpose(votes, (0, 2, 3, 1))

        def sweep(state, _, beta, seed):
            """Draws each visible capsule of p_b, given the others."""
            seeds = split(seed, inputs)

            def body(i, index, z):
                others = z - ops.take(votes[i], index[i], axis=2)
                logits = beta * log_weight(others[:, :, None] + votes[i][..., None])
                pair = StatelessSeed(seeds[i, 0], seeds[i, 1])
                drawn = keras.random.categorical(ops.transpose(logits), 1, index.dtype, pair)
                z = others + ops.take(votes[i], drawn[:, 0], axis=2)
                here = (ops.arange(inputs) == i)[:, None]
                return i + 1, ops.where(here, ops.transpose(drawn), index), z

            begin = (ops.zeros((), "int32"), *state)
            _, index, z = ops.while_loop(lambda i, *_: i < inputs, body, begin)
            return (index, z), log_weight(z)

        which = ops.one_hot(index, ops.shape(votes)[3], dtype=votes.dtype)
        start = (index, ops.einsum("ins,ijes->jen", which, votes))
        return anneal(lambda state: log_weight(state[1]), sweep, linear_gain, start, betas, seeds)

    return compiled(run)


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
