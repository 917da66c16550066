"""A mixture of small Boltzmann machines over the same visible units, exact throughout.

One of J capsules, the parent k, makes the whole of v; its E binary neurons are all that is on:

    P(k) = pi_k,    P(v, h | k) = exp(b.v + h.(a_k + W_k v) - |v|^2/2)/Z_k

With at most 20 neurons a capsule Z_k, P(k | v), log P(v) and the gradient of log P(v) are exact: it
is contrastive divergence whose chain is infinitely long.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_capsule_poe.functions.exact_draws import draw_states
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.randomness import draw_index, streams
from keras_capsule_poe.functions.state_tables import state_moments, state_table
from keras_capsule_poe.functions.units import BinaryUnits, GaussianUnits


class MixtureGradient(NamedTuple):
    """The gradient of the mean of log P(v) over a batch.

    `kernel` (J, E, N), `hidden_bias` (J, E), `visible_bias` (N,), `shares` (J,): of log pi before
    they are normalised.
    """

    kernel: Any
    hidden_bias: Any
    visible_bias: Any
    shares: Any


class Posterior(NamedTuple):
    """What a mixture infers: log P(v) (B,), P(k | v) (B, J) and P(h = 1 | v) (B, J, E).

    Neurons of a capsule that is not the parent are off.
    """

    log_density: Any
    parent: Any
    neurons: Any


class BoltzmannMixture:
    """P(v) = sum_k pi_k P(v | k), of J machines with Gaussian v of deviation one.

    Args:
        kernel: Tensor (J, E, N), W.
        hidden_bias: Tensor (J, E), a; `None`: zero.
        visible_bias: Tensor (N,), b; `None`: zero.
        log_shares: Tensor (J,), log pi up to a constant; `None`: all as likely.

    Raises:
        ValueError: If E is more than 20.

    Examples:

    >>> mixture = BoltzmannMixture(ops.zeros((3, 2, 4)))
    >>> v = ops.zeros((5, 4))
    >>> mixture.log_joint(v).shape, round(float(mixture.log_density(v)[0]), 3)
    (TensorShape([5, 3]), -3.676)

    Reference:

    - [Nair & Hinton, 2008](https://papers.nips.cc/paper/3536), implicit mixtures of restricted
      Boltzmann machines; here the normalisers are known
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
        """-F(h) of all states of each capsule, v summed out, a `state_table`, nats.
        The density of v without W and b is that of N(0, 1).
        """
        kernel, b = self.kernel, self.visible_bias
        gram = ops.einsum("jen,jfn->jef", kernel, kernel)
        field = self.hidden_bias + ops.einsum("jen,n->je", kernel, b)
        return state_table(gram, field) + ops.sum(b * b) / 2

    def fields(self, v):
        """a_k + W_k v of every capsule, (B, J, E)."""
        v = ops.cast(v, self.kernel.dtype)
        return ops.einsum("bn,jen->bje", v, self.kernel) + self.hidden_bias

    def log_joint(self, v, fields=None, log_z=None):
        """log P(k, v), h summed out.

        Args:
            v: Tensor (B, N).
            fields: `fields(v)`, where they are known.
            log_z: Tensor (J,), where they are known.

        Returns:
            Tensor (B, J), nats.
        """
        fields = self.fields(v) if fields is None else fields
        log_z = state_moments(self.table()).log_z if log_z is None else log_z
        v = ops.cast(v, fields.dtype)
        base = GaussianUnits().energy(v, self.visible_bias)
        return self.log_shares - log_z - BinaryUnits().free_energy(fields) - base[:, None]

    def log_density(self, v):
        """log P(v), (B,), nats."""
        return ops.logsumexp(self.log_joint(v), axis=-1)

    def infer(self, v, log_z=None):
        """The `Posterior` of data (B, N); `log_z` as for `log_joint`."""
        fields = self.fields(v)
        joint = self.log_joint(v, fields, log_z)
        log_density = ops.logsumexp(joint, axis=-1)
        parent = ops.exp(joint - log_density[:, None])
        return Posterior(log_density, parent, parent[..., None] * BinaryUnits().mean(fields))

    def gradient(self, v):
        """`MixtureGradient` of data (B, N), and its `Posterior`.

        dW_k = <r_k p_k v^T> - <r_k> (E[h] b^T + E[h h^T] W_k), with r = P(k | v), p_k = P(h = 1 |
        v, k) and the moments of capsule k on its own.
        """
        v = ops.cast(v, self.kernel.dtype)
        count = ops.cast(ops.shape(v)[0], v.dtype)
        log_z, mean, second = state_moments(self.table())
        posterior = self.infer(v, log_z)
        on, share = posterior.neurons, ops.mean(posterior.parent, axis=0)[:, None]
        sent = ops.einsum("jef,jfn->jen", second, self.kernel)
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
        """E[v | h] of neurons (B, J, E), (B, N)."""
        neurons = ops.cast(neurons, self.kernel.dtype)
        return ops.einsum("bje,jen->bn", neurons, self.kernel) + self.visible_bias

    def draw(self, n, seed):
        """Exact draws of P(k, h, v).

        Args:
            n: int.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

        Returns:
            Tensors v (n, N), h (n, J, E) and k (n,).
        """
        first, second, third = streams(seed, 3)
        table = self.table()
        parent = draw_index(ops.broadcast_to(self.log_shares, (n, self.kernel.shape[0])), first)
        h = draw_states(ops.reshape(table, (table.shape[0], -1)), parent, second)
        return self._below(parent, h, third)

    def gibbs_step(self, v, seed):
        """One step of Gibbs sampling: k and h given v, h summed out for k; then v given both.

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
        """v drawn given the parent (B,) and its own neurons (B, E); with h and k."""
        own = ops.cast(own, self.kernel.dtype)
        one_hot = ops.one_hot(parent, self.kernel.shape[0], dtype=own.dtype)
        h = one_hot[..., None] * own[:, None]
        return GaussianUnits().sample(self.decode(h), seed), h, parent


def fit_shares(log_likelihoods, log_shares, steps=100):
    """The log shares pi under which data are most probable, their components as they are.

    Expectation maximisation: no step lowers the likelihood, which has one maximum.

    Args:
        log_likelihoods: Array (N, J), log P(v | k).
        log_shares: Array (J,), where to start; one at zero probability stays there.
        steps: int.

    Returns:
        Array (J,), normalised.

    Examples:

    >>> sure = np.array([[0.0, -99.0], [0.0, -99.0], [-99.0, 0.0]])
    >>> np.exp(fit_shares(sure, np.zeros(2))).round(3).tolist()
    [0.667, 0.333]

    Reference:

    - [Dempster et al., 1977](https://doi.org/10.1111/j.2517-6161.1977.tb01600.x)
    """
    for _ in range(steps):
        joint = log_likelihoods + log_shares
        parent = np.exp(joint - joint.max(axis=1, keepdims=True))
        share = np.mean(parent / parent.sum(axis=1, keepdims=True), axis=0)
        log_shares = np.log(np.maximum(share, 1e-30))
    return log_shares - np.log(np.exp(log_shares).sum())
