"""Votes, agreement and dynamic routing between two layers of capsules: the plain reference form.

Shapes: B images, I input capsules of D dimensions, J output capsules of E dimensions.
"""

from collections import namedtuple

from keras import ops

from keras_capsule_poe.functions.energy import log_odds
from keras_capsule_poe.functions.norms import at_least_float32, direction
from keras_capsule_poe.functions.squash import squash

Routing = namedtuple("Routing", ["coefficients", "z"])
Routing.__doc__ = "Routing coefficients c (B, I, J) and the collectives z (B, J, E) that they give."

NORMALIZE = ("inputs", "outputs")
AGREEMENTS = ("cosine", "dot")


def votes(x, kernel):
    """What each input capsule predicts for each output capsule, W_ij x_i.

    Args:
        x: Tensor (B, I, D), input capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.

    Returns:
        Tensor (B, I, J, E).

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Equation 2
    """
    return ops.einsum("bid,ijed->bije", x, kernel)


def collective(predictions, coefficients):
    """Sum of the votes, weighted by the routing coefficients: z_j = sum_i c_ij W_ij x_i.

    Args:
        predictions: Tensor (B, I, J, E), from `votes`.
        coefficients: Tensor (B, I, J).

    Returns:
        Tensor (B, J, E), output capsules before the squash.
    """
    return ops.einsum("bij,bije->bje", coefficients, predictions)


def agreement(predictions, z, kind="cosine"):
    """How well each vote agrees with the collective.

    Args:
        predictions: Tensor (B, I, J, E), from `votes`.
        z: Tensor (B, J, E), from `collective`.
        kind: `"cosine"`, in [-1, 1], as in Hauser's paper; or `"dot"`, the inner product with
            the squashed collective, as in Sabour et al.

    Returns:
        Tensor (B, I, J).

    Raises:
        ValueError: If `kind` is unknown.
    """
    _check_choice("kind", kind, AGREEMENTS)
    if kind == "cosine":
        return ops.einsum("bije,bje->bij", direction(predictions), direction(z))
    return ops.einsum("bije,bje->bij", predictions, squash(z))


def routing_coefficients(logits, normalize="inputs", scale=1.0):
    """Softmax of the routing logits, times `scale`.

    Args:
        logits: Tensor (B, I, J).
        normalize: `"inputs"`: sum_i c_ij = scale, a weighted mean over the input capsules.
            `"outputs"`: sum_j c_ij = scale, each input splits a finite budget.
        scale: What the coefficients sum to. A unit of measure: multiplying it by s is the same
            as multiplying the kernel by s.

    Returns:
        Tensor (B, I, J).

    Raises:
        ValueError: If `normalize` is unknown.
    """
    _check_choice("normalize", normalize, NORMALIZE)
    axis = 1 if normalize == "inputs" else 2
    if logits.shape[axis] == 1:  # Keras warns of a softmax over one value
        return scale * ops.ones_like(logits)
    return scale * ops.softmax(logits, axis=axis)


def route(
    x,
    kernel,
    iterations=3,
    temperature=1.0,
    normalize="inputs",
    kind="cosine",
    activation_prior=0.0,
    bias=None,
    scale=1.0,
):
    """Routing by agreement, Algorithm 1's c = routing(x, W).

    The first coefficients are uniform (or follow `bias`). Each iteration takes the collective
    z, adds temperature * agreement(votes, z) to the logits, and takes the softmax anew.

    Args:
        x: Tensor (B, I, D), input capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        iterations: Number of agreement updates; 0 leaves the coefficients as they start.
            ("r iterations" in Sabour et al. are r - 1 here: their last update is not used.)
        temperature: Factor T on the agreement: 0 ignores it, a large one is winner-take-all.
        normalize: See `routing_coefficients`.
        kind: See `agreement`.
        activation_prior: Factor beta on the expert's own log-odds log |z_j|^2 in its logits, so
            that c_ij is proportional to |z_j|^(2 beta): experts compete for the whole image, as
            EM routing multiplies by the activation. Without effect with `normalize="inputs"`,
            where the softmax cancels it.
        bias: Tensor (J,), added to the logits of each output capsule; or None.
        scale: See `routing_coefficients`.

    Returns:
        `Routing(coefficients, z)`, of shapes (B, I, J) and (B, J, E).

    Raises:
        ValueError: If an option is unknown or `iterations` is negative.

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1
    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), the activation prior
    """
    check_routing_options(iterations, normalize, kind)
    x, kernel = at_least_float32(x), at_least_float32(kernel)
    predictions = votes(x, kernel)
    agreed = ops.zeros_like(predictions[..., 0])
    offset = 0 if bias is None else ops.cast(bias, agreed.dtype)
    c = routing_coefficients(agreed + offset, normalize, scale)
    z = collective(predictions, c)
    for _ in range(iterations):
        agreed = agreed + temperature * agreement(predictions, z, kind)
        prior = (activation_prior * log_odds(z))[:, None, :]
        c = routing_coefficients(agreed + prior + offset, normalize, scale)
        z = collective(predictions, c)
    return Routing(c, z)


def check_routing_options(iterations, normalize, kind):
    """Raises ValueError for routing options that have no meaning."""
    if not isinstance(iterations, int) or iterations < 0:
        raise ValueError(
            f"`iterations` must be an integer, zero or more. Received: iterations={iterations!r}"
        )
    _check_choice("normalize", normalize, NORMALIZE)
    _check_choice("agreement", kind, AGREEMENTS)


def _check_choice(name, value, choices):
    if value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be {listed}. Received: {name}={value!r}")
