"""All states of small binary layers at once, and mixtures of small Boltzmann machines."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import at_least_float32, draw_index, streams, whole_number
from keras_capsule_poe.core.units import BinaryUnits, GaussianUnits, offset_of, plain_units

# Of a layer of binary neurons, -F(h) = h.field + h^T gram h/2 with gram = W W^T.
MOST_NEURONS = 20


class StateMoments(NamedTuple):
    """log Z (G,) in nats, E[h] (G, E) and E[h h^T] (G, E, E) of G binary layers."""

    log_z: Any
    mean: Any
    second: Any


def binary_states(indices, neurons):
    """Return the states (N, E) with the given indices (N,); the first neuron is the lowest bit."""
    powers = ops.cast(2, "int32") ** ops.arange(neurons, dtype="int32")
    return ops.floor_divide(ops.cast(indices, "int32")[:, None], powers) % 2


def state_table(gram, field):
    """Return -F(h) (G, 2^U, 2^L) of all states; rows are the last U units, columns the first L."""
    gram, field = at_least_float32(gram), at_least_float32(field)
    units = whole_number("units", field.shape[-1])
    if units > MOST_NEURONS:
        raise ValueError(f"At most {MOST_NEURONS} units are enumerated. Received: {units}")
    few = units // 2
    first, last = _halves(units, gram.dtype)
    # Sum two halves instead of multiplying all 2^E states with a matrix.
    couplings = ops.einsum("ue,gef,lf->gul", last, gram[:, few:, :few], first)
    return (
        _alone(last, gram[:, few:, few:], field[:, few:])[:, :, None]
        + _alone(first, gram[:, :few, :few], field[:, :few])[:, None, :]
        + couplings
    )


def state_moments(table):
    """Return the `StateMoments` of the distributions exp(table), table (G, 2^U, 2^L)."""
    units = (table.shape[1] * table.shape[2]).bit_length() - 1
    first, last = _halves(units, table.dtype)
    log_z = ops.logsumexp(table, axis=(1, 2))
    p = ops.exp(table - log_z[:, None, None])
    across = ops.einsum("gul,ue,lf->gef", p, last, first)
    lower = ops.einsum("gl,le,lf->gef", ops.sum(p, axis=1), first, first)
    upper = ops.einsum("gu,ue,uf->gef", ops.sum(p, axis=2), last, last)
    above = ops.concatenate([lower, ops.swapaxes(across, 1, 2)], axis=2)
    second = ops.concatenate([above, ops.concatenate([across, upper], axis=2)], axis=1)
    return StateMoments(log_z, ops.diagonal(second, axis1=1, axis2=2), second)


def _halves(units, dtype):
    """Return the states (2^L, L) of the first units, and (2^U, U) of the last."""
    few = units // 2
    sizes = few, units - few
    return [ops.cast(binary_states(ops.arange(2**size), size), dtype) for size in sizes]


def _alone(states, gram, field):
    """Return -F (G, states) of one half's states, with the other half at zero."""
    quadratic = ops.sum(ops.einsum("se,gef->gsf", states, gram) * states, axis=-1)
    return ops.einsum("se,ge->gs", states, field) + quadratic / 2


_BLOCK = 4096


def state_log_weights(harmonium):
    """Return -F(h) `(2^E,)` of all states of a small binary hidden layer, v summed out."""
    maps, hidden = harmonium.maps, plain_units(harmonium.hidden)
    neurons = maps.output_shape[0]
    if len(maps.output_shape) != 1 or neurons > MOST_NEURONS or not isinstance(hidden, BinaryUnits):
        raise ValueError(
            f"At most {MOST_NEURONS} binary neurons are enumerated, of a flat layer. Received: "
            f"hidden units {maps.output_shape}, {type(hidden).__name__}"
        )
    dtype = maps.kernel.dtype
    side, lam = harmonium.transposed(), offset_of(harmonium.hidden, dtype)
    if isinstance(plain_units(harmonium.visible), GaussianUnits):
        b, mu = harmonium.visible_bias, offset_of(harmonium.visible, dtype)
        gram = ops.matmul(maps.kernel, ops.transpose(maps.kernel))
        field = harmonium.hidden_bias + ops.matmul(maps.kernel, b - mu)
        # Expand y^T gram y/2 with y = h - lambda in powers of h.
        lam = ops.broadcast_to(lam, (neurons,))
        bent = ops.matmul(gram, lam)
        table = state_table(gram[None], (field - bent)[None])
        return (
            ops.reshape(table, (-1,))
            + ops.sum(b * (b / 2 - mu))
            + ops.sum(lam * (bent / 2 - field))
        )
    logs = []
    for first in range(0, 2**neurons, _BLOCK):
        block = ops.arange(first, min(first + _BLOCK, 2**neurons))
        logs.append(-side.free_energy(ops.cast(binary_states(block, neurons), dtype) - lam))
    return ops.concatenate(logs)


def draw_states(log_weights, groups, seed):
    """Draw binary states (N, E) exactly; row g of log weights `(G, 2^E)` defines P_g."""
    log_weights = at_least_float32(log_weights)
    laws, states = log_weights.shape
    neurons = whole_number("neurons", states.bit_length() - 1)
    if states != 2**neurons or neurons > MOST_NEURONS:
        raise ValueError(
            f"`log_weights` must have 2^E columns, E of 1 to {MOST_NEURONS}. "
            f"Received: shape {tuple(log_weights.shape)}"
        )
    # Draw the upper neurons first, then the lower ones given them: rows are short, not 2^E.
    few = 2 ** (neurons // 2)
    table = ops.reshape(log_weights, (laws, states // few, few))
    first, second = streams(seed, 2)
    upper = draw_index(ops.take(ops.logsumexp(table, axis=-1), groups, axis=0), first)
    rows = ops.cast(groups, "int32") * (states // few) + upper
    lower = draw_index(ops.take(ops.reshape(table, (-1, few)), rows, axis=0), second)
    return ops.cast(binary_states(few * upper + lower, neurons), log_weights.dtype)


class MixtureGradient(NamedTuple):
    """Gradient of the mean log P(v): kernel (J, E, N), biases (J, E), (N,), log shares (J,)."""

    kernel: Any
    hidden_bias: Any
    visible_bias: Any
    shares: Any


class Posterior(NamedTuple):
    """log P(v) (B,), P(k | v) (B, J) and `P(h = 1, k | v)` (B, J, E)."""

    log_density: Any
    parent: Any
    neurons: Any


class BoltzmannMixture:
    """Mixture of J small RBMs over Gaussian visible units of unit variance.

    One capsule k, the parent, generates all of v. The neurons of the other capsules are off:

    ```
    P(k) = pi_k
    P(v, h | k) = exp(b.v + h.(a_k + W_k v) - |v|^2/2)/Z_k
    ```

    A capsule has at most 20 neurons, so all its states are enumerated. The likelihood, the
    posterior and the gradient are exact.

    Args:
        kernel: Tensor (J, E, N), W.
        hidden_bias: Tensor (J, E), a; `None`: zero.
        visible_bias: Tensor (N,), b; `None`: zero.
        log_shares: Tensor (J,), log pi up to a constant; `None`: uniform.

    Example:

    >>> mixture = BoltzmannMixture(ops.zeros((3, 2, 4)))
    >>> v = ops.zeros((5, 4))
    >>> mixture.log_joint(v).shape, round(float(mixture.log_density(v)[0]), 3)
    (TensorShape([5, 3]), -3.676)

    Reference:

    - [Nair & Hinton, 2008](https://papers.nips.cc/paper/3536), implicit mixtures of RBMs
    """

    def __init__(self, kernel, hidden_bias=None, visible_bias=None, log_shares=None):
        self.kernel = at_least_float32(kernel)
        machines, neurons, visible = self.kernel.shape
        self.hidden_bias, self.visible_bias, shares = (
            ops.zeros(shape, self.kernel.dtype)
            if given is None
            else ops.cast(given, self.kernel.dtype)
            for given, shape in (
                (hidden_bias, (machines, neurons)),
                (visible_bias, (visible,)),
                (log_shares, (machines,)),
            )
        )
        self.log_shares = shares - ops.logsumexp(shares)

    def table(self):
        """Return -F(h) in nats of all states of each capsule, v summed out: `(J, 2^U, 2^L)`.

        `U + L = E`, and F is relative to the standard Gaussian density of v.

        Raises:
            ValueError: If E is more than 20.
        """
        kernel, b = self.kernel, self.visible_bias
        gram = ops.einsum("jen,jfn->jef", kernel, kernel)
        field = self.hidden_bias + ops.einsum("jen,n->je", kernel, b)
        return state_table(gram, field) + ops.sum(b * b) / 2

    def fields(self, v):
        """Return the pre-activations a_k + W_k v (B, J, E) for data v (B, N)."""
        v = ops.cast(v, self.kernel.dtype)
        return ops.einsum("bn,jen->bje", v, self.kernel) + self.hidden_bias

    def log_joint(self, v, fields=None, log_z=None):
        """Return log P(k, v) (B, J) in nats, h summed out; pass known `fields` or `log_z` (J,)."""
        fields = self.fields(v) if fields is None else fields
        log_z = state_moments(self.table()).log_z if log_z is None else log_z
        v = ops.cast(v, fields.dtype)
        base = GaussianUnits().energy(v, self.visible_bias)
        return self.log_shares - log_z - BinaryUnits().free_energy(fields) - base[:, None]

    def log_density(self, v):
        """Return log P(v) (B,) in nats for data v (B, N)."""
        return ops.logsumexp(self.log_joint(v), axis=-1)

    def infer(self, v, log_z=None):
        """Return the posterior of data v (B, N); pass `log_z` (J,) if it is known.

        Returns:
            Named tuple: `log_density` (B,), `parent` = P(k | v) (B, J) and `neurons`, the
            probabilities (B, J, E) that k is the parent and its neuron is one.
        """
        fields = self.fields(v)
        joint = self.log_joint(v, fields, log_z)
        log_density = ops.logsumexp(joint, axis=-1)
        parent = ops.exp(joint - log_density[:, None])
        return Posterior(log_density, parent, parent[..., None] * BinaryUnits().mean(fields))

    def gradient(self, v):
        """Return the exact gradient of the mean log P(v) over data (B, N), and the posterior.

        Returns:
            Named tuple of gradients: `kernel` (J, E, N), `hidden_bias` (J, E), `visible_bias` (N,)
            and `shares` (J,), with respect to log pi before normalisation. Second, the tuple
            of `infer`.
        """
        v = ops.cast(v, self.kernel.dtype)
        count = ops.cast(ops.shape(v)[0], v.dtype)
        log_z, mean, second = state_moments(self.table())
        posterior = self.infer(v, log_z)
        on, share = posterior.neurons, ops.mean(posterior.parent, axis=0)[:, None]
        sent = ops.einsum("jef,jfn->jen", second, self.kernel)
        # E[h v^T] of capsule k is E[h] b^T + E[h h^T] W_k.
        model = sent + mean[..., None] * self.visible_bias
        from_above = ops.einsum("je,jen->n", share * mean, self.kernel)
        gradient = MixtureGradient(
            ops.einsum("bje,bn->jen", on, v) / count - share[..., None] * model,
            ops.mean(on, axis=0) - share * mean,
            ops.mean(v, axis=0) - self.visible_bias - from_above,
            share[:, 0] - ops.exp(self.log_shares),
        )
        return gradient, posterior

    def decode(self, neurons):
        """Return E[v | h] (B, N) for neurons (B, J, E)."""
        neurons = ops.cast(neurons, self.kernel.dtype)
        return ops.einsum("bje,jen->bn", neurons, self.kernel) + self.visible_bias

    def draw(self, n, seed):
        """Draw n exact samples from P(k, h, v): v (n, N), h (n, J, E) and k (n,)."""
        first, second, third = streams(seed, 3)
        table = self.table()
        parent = draw_index(ops.broadcast_to(self.log_shares, (n, self.kernel.shape[0])), first)
        h = draw_states(ops.reshape(table, (table.shape[0], -1)), parent, second)
        return self._below(parent, h, third)

    def gibbs_step(self, v, seed):
        """One Gibbs step: draw k given v with h summed out, then h, then v given both.

        Args:
            v: Tensor (B, N).
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

        Returns:
            Tensors v (B, N), h (B, J, E) and k (B,).
        """
        first, second, third = streams(seed, 3)
        fields = self.fields(v)
        parent = draw_index(self.log_joint(v, fields), first)
        own = ops.take_along_axis(fields, parent[:, None, None], axis=1)[:, 0]
        return self._below(parent, BinaryUnits().sample(own, second), third)

    def _below(self, parent, own, seed):
        """Draw v given the parent (B,) and its neurons (B, E); return v, h and k."""
        own = ops.cast(own, self.kernel.dtype)
        one_hot = ops.one_hot(parent, self.kernel.shape[0], dtype=own.dtype)
        h = one_hot[..., None] * own[:, None]
        return GaussianUnits().sample(self.decode(h), seed), h, parent


def fit_shares(log_likelihoods, log_shares, steps=100):
    """Return the log shares (J,) that EM finds for fixed components, log P(v | k) (N, J)."""
    for _ in range(steps):
        joint = log_likelihoods + log_shares
        parent = np.exp(joint - joint.max(axis=1, keepdims=True))
        share = np.mean(parent / parent.sum(axis=1, keepdims=True), axis=0)
        log_shares = np.log(np.maximum(share, 1e-30))
    return log_shares - np.log(np.exp(log_shares).sum())
