"""Variational Bayes routing between matrix capsules (Ribeiro et al., 2020)."""

from collections import namedtuple
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.maps import ReceptiveFields
from keras_capsule_poe.core.numerics import at_least_float32, real_number, whole_number
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.models.matrix_capsules.em_routing import EMRouting, WindowChildren

GaussianWisharts = namedtuple("GaussianWisharts", ["alpha", "kappa", "nu", "mean", "psi"])
GaussianWisharts.__doc__ = (
    "Posteriors of parents: alpha, kappa, nu (..., J); mean, psi (..., J, H)."
)


@with_former_names
@dataclass(frozen=True)
class VariationalOptions:
    """Options and priors of variational routing.

    Args:
        routing_iterations: int, number of updates of the parents, at least one. An update of the
            assignment probabilities lies between two of them.
        concentration: float, alpha_0, above zero.
        mean_precision: float, kappa_0, above zero, weight of the prior mean in children.
        degrees_of_freedom: float, nu_0, above H - 1; `None`: H + 1.
        scale: float, psi_0, above zero; `None`: nu_0, which makes the expected precision one.
            The paper uses 1, which makes it H + 1.

    Raises:
        ValueError: If an option is out of range. `degrees_of_freedom` and `scale` are checked
            when routing starts.

    Example:

    >>> VariationalOptions().wishart(16), VariationalOptions(scale=1.0).wishart(16)
    ((17.0, 17.0), (17.0, 1.0))

    Reference:

    - [Ribeiro et al., 2020](https://arxiv.org/abs/1905.11455)
    - [Authors' code](https://github.com/fabio-deep/Variational-Capsule-Routing)
    """

    routing_iterations: int = 3
    concentration: float = 1.0
    mean_precision: float = 1.0
    degrees_of_freedom: float | None = None
    scale: float | None = None

    def __post_init__(self):
        whole_number("routing_iterations", self.routing_iterations)
        real_number("concentration", self.concentration, above=0)
        real_number("mean_precision", self.mean_precision, above=0)

    def wishart(self, size):
        """Return nu_0 and psi_0 for votes of `size` numbers.

        Raises:
            ValueError: If one of them is too small.
        """
        degrees = size + 1 if self.degrees_of_freedom is None else self.degrees_of_freedom
        degrees = real_number("degrees_of_freedom", degrees, above=size - 1)
        scale = degrees if self.scale is None else self.scale
        return degrees, real_number("scale", scale, above=0)


def parent_posteriors(assignment, activation, votes, options=None):
    """Return the `GaussianWisharts` of votes (..., I, J, H) under assignment probabilities."""
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
    """Return E ln pi_j (..., J) of the Dirichlet posteriors over j."""
    total = ops.sum(parents.alpha, axis=-1, keepdims=True)
    return _digamma(parents.alpha) - _digamma(total)


def expected_log_determinants(parents):
    """Return E ln|Lambda_j| (..., J) of the Wishart posteriors."""
    dtype = keras.backend.standardize_dtype(parents.psi.dtype)
    h = ops.arange(parents.psi.shape[-1], dtype=dtype)
    degrees = _digamma((parents.nu[..., None] - h) / 2)
    return ops.sum(degrees + np.log(2.0) - ops.log(parents.psi), axis=-1)


def expected_log_densities(parents, votes):
    """Return E ln(pi_j N(V_ij)) (..., I, J) in nats, the logits of the assignments."""
    votes, size = at_least_float32(votes), parents.mean.shape[-1]
    gap = votes - parents.mean[..., None, :, :]
    distance = ops.sum(ops.square(gap) / parents.psi[..., None, :, :], axis=-1)
    distance = size / parents.kappa[..., None, :] + parents.nu[..., None, :] * distance
    constant = expected_log_determinants(parents) - size * np.log(2 * np.pi)
    constant = expected_log_shares(parents) + constant / 2
    return constant[..., None, :] - distance / 2


def variational_routing(
    votes: Tensor,
    activation: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    fields: ReceptiveFields,
    options: VariationalOptions | None = None,
) -> EMRouting:
    """Variational Bayes routing in windows of child capsules.

    Each parent keeps a posterior over its share (Dirichlet), mean (Gaussian) and precision
    (Wishart, diagonal scale). A parent therefore cannot collapse onto a single vote:

    ```
    mass_j = sum_i r_ij a_i                                            update of parents
    alpha_j, kappa_j, nu_j = alpha_0 + mass_j, kappa_0 + mass_j, nu_0 + mass_j
    mean_jh = sum_i r_ij a_i V_ijh / kappa_j
    psi_jh = psi_0 + kappa_0 mean_jh^2 + sum_i r_ij a_i (V_ijh - mean_jh)^2

    E ln pi_j = digamma(alpha_j) - digamma(sum_k alpha_k)              update of assignments
    E ln|Lambda_j| = sum_h [digamma((nu_j - h) / 2) + ln 2 - ln psi_jh],  h = 0 ... H - 1
    E Q_ij = H / kappa_j + nu_j sum_h (V_ijh - mean_jh)^2 / psi_jh
    r_ij = softmax_j of E ln pi_j + (E ln|Lambda_j| - H ln 2 pi - E Q_ij) / 2

    a_j = sigmoid(beta_a - beta_u - exp(E ln pi_j) (H ln(2 pi e) - E ln|Lambda_j|) / 2)
    ```

    No update lowers the bound on the evidence. Two points differ from the authors' code.
    There, `E ln pi_j` is missing from the numerator of `r_ij`, and only the types of one place
    compete for a child. Here all parents that see a child compete for it.

    Args:
        votes, activation, beta_u, beta_a, fields: See `em_routing`.
        options: `VariationalOptions`; `None`: the defaults.

    Returns:
        Named tuple as of `em_routing`; `pose` is the posterior mean.

    Example:

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
    """Return the `RoutingStep` of each iteration of `variational_routing`."""
    options, children = options or VariationalOptions(), WindowChildren(votes, activation, fields)

    def update(assignment, *_):
        parents = parent_posteriors(assignment, children.activation, children.votes, options)
        return parents, _log_odds(parents, beta_u, beta_a)

    def logits(parents, _):
        return expected_log_densities(parents, children.votes)

    return children.route(options.routing_iterations, update, logits)


def _log_odds(parents, beta_u, beta_a):
    """Return log-odds of activations (..., J): weights minus share times expected entropy."""
    size = parents.mean.shape[-1]
    entropy = (size * np.log(2 * np.pi * np.e) - expected_log_determinants(parents)) / 2
    return beta_a - beta_u - ops.exp(expected_log_shares(parents)) * entropy


def _digamma(x):
    """Return digamma(x) from the backend, as Keras has none."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.math.digamma(x)
    if backend == "torch":
        import torch

        return torch.digamma(x)
    import jax

    return jax.scipy.special.digamma(x)
