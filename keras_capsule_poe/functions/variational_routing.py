"""Variational routing: parents as Gaussian clusters of votes, of which a distribution is known.

Instead of one mean and variance, as EM routing has them, a parent keeps how sure it is of both,
so that none can shrink around a single vote. At each place types have shares pi ~ Dirichlet
(alpha_0); a parent's votes a mean ~ N(0, (kappa_0 Lambda)^-1) and a precision Lambda ~ Wishart of
nu_0 degrees of freedom and inverse scale psi_0. Of H numbers, h = 0, 1, ... H - 1:

    mass_j = sum_i r_ij a_i                                             what is known of parents
    alpha_j, kappa_j, nu_j = alpha_0 + mass_j, kappa_0 + mass_j, nu_0 + mass_j
    mean_jh = sum_i r_ij a_i V_ijh / kappa_j
    psi_jh = psi_0 + kappa_0 mean_jh^2 + sum_i r_ij a_i (V_ijh - mean_jh)^2

    E ln pi_j = digamma(alpha_j) - digamma(sum_k alpha_k)               and of assignments
    E ln|Lambda_j| = sum_h [digamma((nu_j - h) / 2) + ln 2 - ln psi_jh]
    E Q_ij = H / kappa_j + nu_j sum_h (V_ijh - mean_jh)^2 / psi_jh
    r_ij = softmax of E ln pi_j + (E ln|Lambda_j| - H ln 2 pi - E Q_ij) / 2
                                                     over all parents j that see i

    a_j = sigmoid(beta_a - beta_u - exp(E ln pi_j) (H ln(2 pi e) - E ln|Lambda_j|) / 2)

The updates are Bishop's (2006, Equations 10.46 to 10.66), a child counting a_i times. Each is the
maximum of a lower bound on the evidence, over posteriors whose Wishart scale is diagonal, so that
the bound never falls. From the code of Ribeiro et al. are the diagonal, the kinds of priors and
the activation: the entropy that a parent's Gaussian is expected to have, weighted by its share.
There poses and log-odds are normalised over the batch, too, which is a layer's matter. Two things
there are not done here: the numerator of r_ij has no E ln pi_j, so that a child's shares do not
sum to one; and only the types of one place compete for a child, which counts in every window.
"""

from collections import namedtuple
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.checks import real_number, whole_number
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.window_children import WindowChildren

GaussianWisharts = namedtuple("GaussianWisharts", ["alpha", "kappa", "nu", "mean", "psi"])
GaussianWisharts.__doc__ = (
    "Posteriors of parents: alpha, kappa, nu (..., J); mean, psi (..., J, H)."
)


@dataclass(frozen=True)
class VariationalOptions:
    """How matrix capsules are routed by variational Bayes, and the priors.

    Args:
        iterations: int, updates of the parents, at least one; one of the assignments lies between
            two of them.
        concentration: float, alpha_0, above zero.
        mean_precision: float, kappa_0, above zero: how many children the prior mean counts.
        degrees_of_freedom: float, nu_0, above H - 1; None: H + 1.
        scale: float, psi_0, above zero; None: nu_0, so that a precision of one is expected, that
            of votes of size one. The 1 that was published expects H + 1.

    Raises:
        ValueError: If an option has no meaning.

    Examples:

    >>> VariationalOptions().wishart(16), VariationalOptions(scale=1.0).wishart(16)
    ((17.0, 17.0), (17.0, 1.0))

    Reference:

    - [Ribeiro et al., 2020](https://arxiv.org/abs/1905.11455)
    - [its code](https://github.com/fabio-deep/Variational-Capsule-Routing)
    """

    iterations: int = 3
    concentration: float = 1.0
    mean_precision: float = 1.0
    degrees_of_freedom: float | None = None
    scale: float | None = None

    def __post_init__(self):
        whole_number("iterations", self.iterations)
        real_number("concentration", self.concentration, above=0)
        real_number("mean_precision", self.mean_precision, above=0)

    def wishart(self, size):
        """nu_0 and psi_0 for votes of so many numbers.

        Raises:
            ValueError: If they are too small.
        """
        degrees = size + 1 if self.degrees_of_freedom is None else self.degrees_of_freedom
        degrees = real_number("degrees_of_freedom", degrees, above=size - 1)
        scale = degrees if self.scale is None else self.scale
        return degrees, real_number("scale", scale, above=0)


def parent_posteriors(assignment, activation, votes, options=None):
    """What is known of each parent from the votes that belong to it.

    Args:
        assignment: Tensor (..., I, J), r_ij.
        activation: Tensor (..., I), a_i of the children.
        votes: Tensor (..., I, J, H), V_ijh; or (..., I, 1, H), points that are the same for all.
        options: `VariationalOptions`; None: as it is.

    Returns:
        `GaussianWisharts`.

    Examples:

    >>> points = np.array([[0.0], [2.0], [9.0]])[:, None]
    >>> found = parent_posteriors(np.array([[1.0], [1.0], [0.0]]), np.ones(3), points)
    >>> [np.round(x, 2).tolist() for x in found]
    [[3.0], [3.0], [4.0], [[0.67]], [[4.67]]]
    """
    options = options or VariationalOptions()
    votes, assignment = at_least_float32(votes), at_least_float32(assignment)
    weights = assignment * at_least_float32(activation)[..., None]
    mass = ops.sum(weights, axis=-2)
    kappa = options.mean_precision + mass
    mean = ops.sum(weights[..., None] * votes, axis=-3) / kappa[..., None]
    gap = votes - mean[..., None, :, :]
    degrees, scale = options.wishart(votes.shape[-1])
    psi = scale + options.mean_precision * ops.square(mean)
    psi = psi + ops.sum(weights[..., None] * ops.square(gap), axis=-3)
    return GaussianWisharts(options.concentration + mass, kappa, degrees + mass, mean, psi)


def expected_log_shares(parents):
    """E ln pi_j (..., J), of the Dirichlet distribution over j.

    Examples:

    >>> alpha = np.array([1.0, 1.0])  # shares that are uniform in [0, 1]
    >>> np.round(expected_log_shares(GaussianWisharts(alpha, *[None] * 4)), 6).tolist()
    [-1.0, -1.0]
    """
    total = ops.sum(parents.alpha, axis=-1, keepdims=True)
    return _digamma(parents.alpha) - _digamma(total)


def expected_log_determinants(parents):
    """E ln|Lambda_j| (..., J), of the Wishart distributions.

    Examples:

    >>> parent = GaussianWisharts(None, None, np.array([2e6]), None, np.full((1, 2), 1e6))
    >>> round(float(expected_log_determinants(parent)[0]), 4)  # a precision of 2, twice
    1.3863
    """
    dtype = keras.backend.standardize_dtype(parents.psi.dtype)
    h = ops.arange(parents.psi.shape[-1], dtype=dtype)
    degrees = _digamma((parents.nu[..., None] - h) / 2)
    return ops.sum(degrees + np.log(2.0) - ops.log(parents.psi), axis=-1)


def expected_log_densities(parents, votes):
    """E ln(pi_j N(V_ij)), of which the assignment is the softmax over the parents of a child.

    Args:
        parents: `GaussianWisharts`, (..., J) and (..., J, H).
        votes: Tensor (..., I, J, H) or (..., I, 1, H).

    Returns:
        Tensor (..., I, J), nats.

    Examples:

    >>> parent = GaussianWisharts(*(np.array([x]) for x in (1.0, 1e6, 1e6)),
    ...                           np.zeros((1, 2)), np.full((1, 2), 1e6))
    >>> found = expected_log_densities(parent, np.zeros((1, 1, 2)))
    >>> round(float(np.exp(found[0, 0])), 4)  # 1 / (2 pi), of a known Gaussian
    0.1592
    """
    votes, size = at_least_float32(votes), parents.mean.shape[-1]
    gap = votes - parents.mean[..., None, :, :]
    distance = ops.sum(ops.square(gap) / parents.psi[..., None, :, :], axis=-1)
    distance = size / parents.kappa[..., None, :] + parents.nu[..., None, :] * distance
    constant = expected_log_determinants(parents) - size * np.log(2 * np.pi)
    constant = expected_log_shares(parents) + constant / 2
    return constant[..., None, :] - distance / 2


def variational_routing(votes, activation, beta_u, beta_a, fields, options=None):
    """Parents of windows of children, by variational Bayes on their votes.

    Args:
        votes, activation, beta_u, beta_a, fields: See `em_routing`. The weights count together,
            as beta_a - beta_u.
        options: `VariationalOptions`; None: as it is without arguments.

    Returns:
        `EMRouting`, see `em_routing`: the pose is the mean that is expected.

    Examples:

    >>> from keras_capsule_poe.functions import ReceptiveFields
    >>> fields = ReceptiveFields(4, 4, kernel_size=3)
    >>> votes = np.random.default_rng(0).normal(size=(2, 4, 9, 5, 3, 16))
    >>> found = variational_routing(votes, np.ones((2, 4, 9, 5)), np.zeros(3), np.zeros(3), fields)
    >>> found.pose.shape, found.activation.shape
    (TensorShape([2, 4, 3, 16]), TensorShape([2, 4, 3]))

    Reference:

    - [Ribeiro et al., 2020](https://arxiv.org/abs/1905.11455), Algorithm 1
    - Bishop, Pattern Recognition and Machine Learning, 2006, Section 10.2
    """
    return variational_steps(votes, activation, beta_u, beta_a, fields, options)[-1].routing


def variational_steps(votes, activation, beta_u, beta_a, fields, options=None):
    """The iterations of `variational_routing`, of the same arguments: a list of `RoutingStep`.

    Examples:

    >>> from keras_capsule_poe.functions import ReceptiveFields
    >>> fields = ReceptiveFields(1, 2)
    >>> votes = np.array([0.0, 1.0, 1.0, 3.0]).reshape(1, 1, 2, 1, 2, 1)
    >>> steps = variational_steps(votes, np.ones((1, 1, 2, 1)), np.zeros(2), np.zeros(2), fields)
    >>> [np.round(step.routing.assignment[0, 0, 1, 0], 2).tolist() for step in steps]
    [[0.5, 0.5], [0.77, 0.23], [0.93, 0.07]]
    """
    options, steps = options or VariationalOptions(), []
    children = WindowChildren(votes, activation, fields)
    log_assignment, parents = children.first(), None
    for iteration in range(options.iterations):
        if iteration:
            log_assignment = children.compete(expected_log_densities(parents, children.votes))
        assignment = ops.exp(log_assignment)
        parents = parent_posteriors(assignment, children.activation, children.votes, options)
        steps.append(
            children.step(log_assignment, parents.mean, _log_odds(parents, beta_u, beta_a))
        )
    return steps


def _log_odds(parents, beta_u, beta_a):
    """Of the activations (..., J): weights less the share of the expected entropy."""
    size = parents.mean.shape[-1]
    entropy = (size * np.log(2 * np.pi * np.e) - expected_log_determinants(parents)) / 2
    return beta_a - beta_u - ops.exp(expected_log_shares(parents)) * entropy


def _digamma(x):
    """The backend's: Keras has none."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.math.digamma(x)
    if backend == "torch":
        import torch

        return torch.digamma(x)
    import jax

    return jax.scipy.special.digamma(x)
