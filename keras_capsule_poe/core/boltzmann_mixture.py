"""A mixture of small Boltzmann machines with exact likelihoods, posteriors and gradients."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_capsule_poe.core.binary_states import draw_states, state_moments, state_table
from keras_capsule_poe.core.numerics import at_least_float32
from keras_capsule_poe.core.randomness import draw_index, streams
from keras_capsule_poe.core.units import BinaryUnits, GaussianUnits


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
