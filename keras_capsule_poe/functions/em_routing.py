"""EM routing: parents as Gaussian clusters of their children's votes.

    mass_j = sum_i r_ij a_i                                                        M step
    mean_jh = sum_i r_ij a_i V_ijh / mass_j
    variance_jh = sum_i r_ij a_i (V_ijh - mean_jh)^2 / mass_j
    cost_jh = (beta_u + ln sqrt(variance_jh)) mass_j
    a_j = sigmoid(lambda (beta_a - sum_h cost_jh))

    ln p_ij = -1/2 sum_h [(V_ijh - mean_jh)^2 / variance_jh + ln(2 pi variance_jh)]   E step
    r_ij = (a_j p_ij)^(1/T) / sum_k (a_k p_ik)^(1/T)      over all parents k that see i

V_ijh is number h of the vote of child i for parent j, a_i the activation of the child. T is 1 in
the paper; above 1, as in deterministic annealing, no child belongs to one parent alone. The steps
are of any parents that see the same children; windows that share children have a competition of
their own (`ReceptiveFields.compete`). The E step is computed from logarithms, and all in float32 at
least. A parent of less mass than 1e-7 has its mean drawn towards zero, instead of none.
"""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
from keras import ops

from keras_capsule_poe.functions.checks import one_of, real_number, whole_number
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.window_children import WindowChildren

Clusters = namedtuple("Clusters", ["mean", "variance", "cost"])
Clusters.__doc__ = "Means and variances (..., J, H) of parents, and the costs of their numbers."

SCHEDULES = ("official", "linear", "constant")
# What stands in for the mass of a parent that no child belongs to.
TINY = 1e-7


@dataclass(frozen=True)
class EMOptions:
    """How matrix capsules are routed.

    Args:
        iterations: int, M steps, at least one; an E step lies between two of them.
        schedule: How the inverse temperature lambda rises with the iterations t = 0, 1, ...:
            `"official"`, lambda (1 - 0.95^(t + 1)), as in the code published with the paper;
            `"linear"`, lambda (t + 1); or `"constant"`.
        inverse_temperature: float, lambda, above zero.
        compete: Which parents share a child: `"all"` that see it, as the paper has it; or
            `"places"`, those of one type, as in the published convolutional layers.
        damping: float in [0, 1), the share of the mean of the iteration before (at first zero)
            that is kept; 0.1 in the published code.
        variance_floor: float, above zero, added to the variances.
        assignment_temperature: float, T, above zero: assignments are softmaxes of ln(a_j p_ij)/T.

    Raises:
        ValueError: If an option has no meaning.

    Examples:

    >>> [round(EMOptions().inverse_temperature_at(t), 6) for t in range(3)]
    [0.0005, 0.000975, 0.001426]

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Procedure 1
    - [its code](https://github.com/google-research/google-research/tree/master/capsule_em)
    - [Ueda & Nakano, 1998](https://doi.org/10.1016/S0893-6080(97)00133-0), the temperature T
    """

    iterations: int = 3
    schedule: str = "official"
    inverse_temperature: float = 0.01
    compete: str = "all"
    damping: float = 0.0
    variance_floor: float = 5e-4
    assignment_temperature: float = 1.0

    def __post_init__(self):
        whole_number("iterations", self.iterations)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("compete", self.compete, ("all", "places"))
        real_number("inverse_temperature", self.inverse_temperature, above=0)
        real_number("variance_floor", self.variance_floor, above=0)
        real_number("assignment_temperature", self.assignment_temperature, above=0)
        if not 0 <= real_number("damping", self.damping) < 1:
            raise ValueError(f"`damping` must lie in [0, 1). Received: damping={self.damping!r}")

    def inverse_temperature_at(self, iteration):
        """Lambda at an iteration, from 0."""
        rises = {"official": 1 - 0.95 ** (iteration + 1), "linear": iteration + 1, "constant": 1}
        return self.inverse_temperature * rises[self.schedule]


def m_step(assignment, activation, votes, beta_u, options=None, previous=0.0):
    """The Gaussian of each parent from the votes that belong to it, and what it costs.

    Args:
        assignment: Tensor (..., I, J), r_ij.
        activation: Tensor (..., I), a_i of the children.
        votes: Tensor (..., I, J, H), V_ijh; or (..., I, 1, H), points that are the same for all.
        beta_u: Tensor of a shape that multiplies (..., J), cost of describing nothing.
        options: `EMOptions`, of which the floor and the damping are used; None: as it is.
        previous: Tensor (..., J, H), the mean of the iteration before, for the damping.

    Returns:
        `Clusters`, each (..., J, H); costs are nats times children.

    Examples:

    >>> points = np.array([[0.0], [2.0], [9.0]])[:, None]
    >>> r = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> found = m_step(r, np.ones(3), points, beta_u=0.0)
    >>> np.round(found.mean, 3).tolist(), np.round(found.variance, 4).tolist()
    ([[1.0], [9.0]], [[1.0005], [0.0005]])
    """
    options = options or EMOptions()
    votes, assignment = at_least_float32(votes), at_least_float32(assignment)
    weights = assignment * at_least_float32(activation)[..., None]
    mass = ops.sum(weights, axis=-2)[..., None]
    # Shares of the children before sums with votes, which a small mass would round away.
    shares = (weights / ops.maximum(mass, TINY)[..., None, :, 0])[..., None]
    mean = ops.sum(shares * votes, axis=-3)
    mean = (1 - options.damping) * mean + options.damping * previous
    gap = votes - mean[..., None, :, :]
    variance = ops.sum(shares * ops.square(gap), axis=-3) + options.variance_floor
    beta_u = ops.convert_to_tensor(beta_u, dtype=mean.dtype)[..., None]
    return Clusters(mean, variance, (beta_u + ops.log(variance) / 2) * mass)


def activation_log_odds(cost, beta_a, inverse_temperature):
    """lambda (beta_a - sum_h cost_jh) of parents, (..., J)."""
    return inverse_temperature * (beta_a - ops.sum(cost, axis=-1))


def e_step(clusters, log_activation, votes):
    """ln(a_j p_ij), of which, over T, the assignment is the softmax over the parents of a child.

    Args:
        clusters: `Clusters` of the parents, (..., J, H).
        log_activation: Tensor (..., J), ln a_j; or of other weights of the clusters.
        votes: Tensor (..., I, J, H) or (..., I, 1, H).

    Returns:
        Tensor (..., I, J), nats.

    Examples:

    >>> parent = Clusters(np.zeros((1, 2)), np.ones((1, 2)), None)
    >>> found = e_step(parent, np.zeros(1), np.zeros((1, 1, 2)))
    >>> round(float(np.exp(found[0, 0])), 4)  # 1 / (2 pi)
    0.1592
    """
    votes = at_least_float32(votes)
    gap = votes - clusters.mean[..., None, :, :]
    distance = ops.sum(ops.square(gap) / clusters.variance[..., None, :, :], axis=-1)
    volume = ops.sum(ops.log(2 * np.pi * clusters.variance), axis=-1)
    constant = at_least_float32(log_activation) - volume / 2
    return constant[..., None, :] - distance / 2


def em_routing(votes, activation, beta_u, beta_a, fields, options=None):
    """Parents of windows of children, by EM on their votes.

    The readable form: all votes are stored, once for each iteration where gradients are asked.

    Args:
        votes: Tensor (B, P, K, I, J, H): at each of P parent places, of the I children at each
            of K places of its window, for each of J parents.
        activation: Tensor (B, P, K, I), a_i of these children.
        beta_u, beta_a: Tensors (J,).
        fields: `ReceptiveFields`, with the P and K above.
        options: `EMOptions`; None: as it is without arguments.

    Returns:
        `EMRouting`: (B, P, J, H), (B, P, J) and (B, P, K, I, J), at least float32. Of one
        iteration the assignment is the first one: shares of its parents.

    Examples:

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
    """The iterations of `em_routing`, of the same arguments: a list of `RoutingStep`.

    Examples:

    >>> from keras_capsule_poe.functions import ReceptiveFields
    >>> fields = ReceptiveFields(1, 2)
    >>> votes = np.array([0.0, 1.0, 1.0, 3.0]).reshape(1, 1, 2, 1, 2, 1)
    >>> steps = em_steps(votes, np.ones((1, 1, 2, 1)), np.zeros(2), np.zeros(2), fields)
    >>> [np.round(step.routing.assignment[0, 0, 1, 0], 2).tolist() for step in steps]
    [[0.5, 0.5], [0.67, 0.33], [0.67, 0.33]]
    """
    options, steps = options or EMOptions(), []
    children = WindowChildren(votes, activation, fields, options.compete)
    log_assignment, clusters, log_odds, mean = children.first(), None, None, 0.0
    for iteration in range(options.iterations):
        if iteration:
            logits = e_step(clusters, ops.log_sigmoid(log_odds), children.votes)
            log_assignment = children.compete(logits / options.assignment_temperature)
        assignment = ops.exp(log_assignment)
        clusters = m_step(
            assignment, children.activation, children.votes, beta_u, options, previous=mean
        )
        mean, inverse_temperature = clusters.mean, options.inverse_temperature_at(iteration)
        log_odds = activation_log_odds(clusters.cost, beta_a, inverse_temperature)
        steps.append(children.step(log_assignment, mean, log_odds))
    return steps
