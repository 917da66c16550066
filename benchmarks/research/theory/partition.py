"""log Z of small products of expert capsules with discrete visible capsules."""

from functools import lru_cache

import keras
import numpy as np
from keras import ops
from scipy.special import logsumexp

from keras_capsule_poe.core.likelihood import anneal, linear_gain, log_mean
from keras_capsule_poe.core.numerics import StatelessSeed, compiled, split
from keras_capsule_poe.core.units import CAPSULES, free_energy

MOST_STATES = 1_000_000


def exact_log_partition(kernel, coefficients, values, units=CAPSULES, hidden_bias=None):
    """Return log Z in nats by enumeration of all S^I states of I capsules with S values."""
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
    """Return log Z in nats and its error by AIS from the uniform distribution."""
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
    """Compile AIS of discrete capsules; states are value indices (I, N) and z (J, E, N)."""

    # The chains are the last axis, so that sums over small axes run over long rows.
    def log_weight(z):
        return -ops.sum(units.free_energy(z, axis=1), axis=0)

    def run(votes, index, betas, seeds):
        inputs = ops.shape(votes)[0]
        votes = ops.transpose(votes, (0, 2, 3, 1))

        def sweep(state, _, beta, seed):
            """Draw each visible capsule from p_b given the others."""
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
