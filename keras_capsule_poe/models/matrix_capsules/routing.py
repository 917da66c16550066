"""Routing between matrix capsules, by EM and by variational Bayes."""

from collections import namedtuple
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import below_one
from keras_capsule_poe.core.maps import ReceptiveFields
from keras_capsule_poe.core.numerics import at_least_float32, one_of, real_number, whole_number
from keras_capsule_poe.former_names import with_former_names

EMRouting = namedtuple("EMRouting", ["pose", "activation", "assignment"])
EMRouting.__doc__ = "Poses (..., J, H) and activations (..., J) of parents; r (..., I, J)."


class RoutingStep(namedtuple("RoutingStep", ["log_assignment", "pose", "log_odds"])):
    """ln r (..., I, J) at the start of an iteration; the poses and log-odds it computed."""

    @property
    def routing(self):
        """The step as an `EMRouting`."""
        return EMRouting(self.pose, ops.sigmoid(self.log_odds), ops.exp(self.log_assignment))


class WindowChildren:
    """Votes (B, P, C, J, H) and activations (B, P, C) of windows, flattened to C = K I."""

    def __init__(self, votes, activation, fields, compete="all"):
        self.votes = self._together(at_least_float32(votes))
        self.activation = self._together(at_least_float32(activation))
        self._fields, self._between = fields, compete
        self._shape = (-1, *votes.shape[1:5])

    def first(self):
        """Return ln r (B, P, C, J) for equal shares of all parents that see a child."""
        *_, inputs, outputs = self._shape
        shares = np.log(first_assignment(self._fields, inputs, outputs, self._between))
        none = ops.zeros_like(self.votes[..., 0])
        return none + self._together(ops.cast(shares, none.dtype)[None])

    def compete(self, logits):
        """Return ln r (B, P, C, J) for logits, see `ReceptiveFields.compete`."""
        logits = ops.reshape(logits, self._shape)
        return self._together(self._fields.log_compete(logits, between=self._between))

    def route(self, iterations, update, logits):
        """Return the `RoutingStep` of each iteration: parents are updated, then assignments."""
        parents, log_odds, steps = None, None, []
        for iteration in range(iterations):
            log_assignment = self.compete(logits(parents, log_odds)) if iteration else self.first()
            parents, log_odds = update(ops.exp(log_assignment), parents, iteration)
            log_assignment = ops.reshape(log_assignment, self._shape)
            steps.append(RoutingStep(log_assignment, parents.mean, log_odds))
        return steps

    @staticmethod
    def _together(x):
        """Reshape (B, P, K, I, ...) to (B, P, K I, ...)."""
        return ops.reshape(x, (-1, x.shape[1], x.shape[2] * x.shape[3], *x.shape[4:]))


def first_assignment(fields, inputs, outputs, compete="all"):
    """Return equal shares (P, K, I, J) of all parents that see a child."""
    shares = 1 / (fields.parents * (outputs if compete == "all" else 1))[fields.children]
    return np.broadcast_to(shares[..., None, None], (*shares.shape, inputs, outputs))


Clusters = namedtuple("Clusters", ["mean", "variance", "cost"])
Clusters.__doc__ = "Means and variances (..., J, H) of parents, and the costs of their numbers."

SCHEDULES = ("official", "linear", "constant")
# Lower bound on a parent's mass; the mean of a parent with less mass shrinks towards zero.
TINY = 1e-7


@with_former_names
@dataclass(frozen=True)
class EMOptions:
    """Options of EM routing.

    Args:
        routing_iterations: int, number of M steps, at least one. An E step lies between two of
            them, so the first M step has uniform assignment probabilities.
        schedule: Schedule of the inverse temperature over iterations t:
            `"official"`, `lambda (1 - 0.95^(t + 1))` as in the authors' code; `"linear"`,
            `lambda (t + 1)`; or `"constant"`.
        inverse_temperature: float, lambda, above zero.
        compete: Parents that compete for a child: `"all"` that see it, as in the paper; or
            `"places"`, those of one type, as in the authors' code of convolutional layers.
        damping: float in `[0, 1)`, weight of the previous mean (at first zero) in the new mean.
            The authors' code uses 0.1.
        variance_floor: float, above zero, added to the variances.
        assignment_temperature: float, T, above zero. Assignment probabilities are softmaxes of
            `ln(a_j p_ij)/T`.

    Raises:
        ValueError: If an option is out of range.

    Example:

    >>> [round(EMOptions().inverse_temperature_at(t), 6) for t in range(3)]
    [0.0005, 0.000975, 0.001426]

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Procedure 1
    - [Authors' code](https://github.com/google-research/google-research/tree/master/capsule_em)
    - [Ueda & Nakano, 1998](https://doi.org/10.1016/S0893-6080(97)00133-0), the temperature T
    """

    routing_iterations: int = 3
    schedule: str = "official"
    inverse_temperature: float = 0.01
    compete: str = "all"
    damping: float = 0.0
    variance_floor: float = 5e-4
    assignment_temperature: float = 1.0

    def __post_init__(self):
        whole_number("routing_iterations", self.routing_iterations)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("compete", self.compete, ("all", "places"))
        real_number("inverse_temperature", self.inverse_temperature, above=0)
        real_number("variance_floor", self.variance_floor, above=0)
        real_number("assignment_temperature", self.assignment_temperature, above=0)
        below_one("damping", self.damping)

    def inverse_temperature_at(self, iteration):
        """Return lambda at an iteration, counted from zero."""
        rises = {"official": 1 - 0.95 ** (iteration + 1), "linear": iteration + 1, "constant": 1}
        return self.inverse_temperature * rises[self.schedule]


def m_step(assignment, activation, votes, beta_u, options=None, previous=0.0):
    """Return the `Clusters` (..., J, H) of votes (..., I, J, H) under assignment probabilities."""
    options = options or EMOptions()
    votes, assignment = at_least_float32(votes), at_least_float32(assignment)
    weights = assignment * at_least_float32(activation)[..., None]
    mass = ops.sum(weights, axis=-2)[..., None]
    # Normalise before the sum over votes: a small mass would lose precision.
    shares = (weights / ops.maximum(mass, TINY)[..., None, :, 0])[..., None]
    mean = ops.sum(shares * votes, axis=-3)
    mean = (1 - options.damping) * mean + options.damping * previous
    gap = votes - mean[..., None, :, :]
    variance = ops.sum(shares * ops.square(gap), axis=-3) + options.variance_floor
    beta_u = ops.convert_to_tensor(beta_u, dtype=mean.dtype)[..., None]
    return Clusters(mean, variance, (beta_u + ops.log(variance) / 2) * mass)


def activation_log_odds(cost, beta_a, inverse_temperature):
    """Return lambda (beta_a - sum_h cost_jh) of parents (..., J)."""
    return inverse_temperature * (beta_a - ops.sum(cost, axis=-1))


def e_step(clusters, log_activation, votes):
    """Return ln(a_j p_ij) (..., I, J) in nats, the logits of the assignment probabilities."""
    votes = at_least_float32(votes)
    gap = votes - clusters.mean[..., None, :, :]
    distance = ops.sum(ops.square(gap) / clusters.variance[..., None, :, :], axis=-1)
    volume = ops.sum(ops.log(2 * np.pi * clusters.variance), axis=-1)
    constant = at_least_float32(log_activation) - volume / 2
    return constant[..., None, :] - distance / 2


def em_routing(
    votes: Tensor,
    activation: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    fields: ReceptiveFields,
    options: EMOptions | None = None,
) -> EMRouting:
    """EM routing in windows of child capsules.

    ```
    mass_j = sum_i r_ij a_i                                                        M step
    mean_jh = sum_i r_ij a_i V_ijh / mass_j
    variance_jh = sum_i r_ij a_i (V_ijh - mean_jh)^2 / mass_j + variance_floor
    cost_jh = (beta_u + ln sqrt(variance_jh)) mass_j
    a_j = sigmoid(lambda (beta_a - sum_h cost_jh))

    ln p_ij = -1/2 sum_h [(V_ijh - mean_jh)^2 / variance_jh + ln(2 pi variance_jh)]  E step
    r_ij = (a_j p_ij)^(1/T) / sum_k (a_k p_ik)^(1/T)     over all parents k that see i
    ```

    This reference version stores all votes. It computes in float32 or wider.

    Args:
        votes: Tensor (B, P, K, I, J, H): P parent places, K places of a window, I child types,
            J parent types and H numbers of a pose.
        activation: Tensor (B, P, K, I), activations a_i of the children in each window.
        beta_u, beta_a: Tensors (J,).
        fields: `ReceptiveFields` with these P and K.
        options: `EMOptions`; `None`: the defaults.

    Returns:
        Named tuple: `pose` (B, P, J, H), `activation` (B, P, J), and `assignment`
        (B, P, K, I, J), the r_ij of the last M step.

    Example:

    >>> from keras_capsule_poe.functions import ReceptiveFields
    >>> fields = ReceptiveFields(4, 4, kernel_size=3)
    >>> votes = np.random.default_rng(0).normal(size=(2, 4, 9, 5, 3, 16))
    >>> found = em_routing(votes, np.ones((2, 4, 9, 5)), np.zeros(3), np.zeros(3), fields)
    >>> found.pose.shape, found.activation.shape
    (TensorShape([2, 4, 3, 16]), TensorShape([2, 4, 3]))

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Procedure 1
    """
    return em_steps(votes, activation, beta_u, beta_a, fields, options)[-1].routing


def em_steps(votes, activation, beta_u, beta_a, fields, options=None):
    """Return the `RoutingStep` of each iteration of `em_routing`."""
    options = options or EMOptions()
    children = WindowChildren(votes, activation, fields, options.compete)

    def update(assignment, clusters, iteration):
        mean = clusters.mean if clusters else 0.0
        clusters = m_step(assignment, children.activation, children.votes, beta_u, options, mean)
        inverse_temperature = options.inverse_temperature_at(iteration)
        return clusters, activation_log_odds(clusters.cost, beta_a, inverse_temperature)

    def logits(clusters, log_odds):
        found = e_step(clusters, ops.log_sigmoid(log_odds), children.votes)
        return found / options.assignment_temperature

    return children.route(options.routing_iterations, update, logits)


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
