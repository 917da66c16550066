"""Children that windows share, and their assignment to parents, as every routing of them has it."""

from collections import namedtuple

import numpy as np
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32

EMRouting = namedtuple("EMRouting", ["pose", "activation", "assignment"])
EMRouting.__doc__ = "Poses (..., J, H) and activations (..., J) of parents; r (..., I, J)."


class RoutingStep(namedtuple("RoutingStep", ["log_assignment", "pose", "log_odds"])):
    """ln r (..., I, J) by which an iteration began; the poses and log-odds that it found."""

    @property
    def routing(self):
        """The same as an `EMRouting`."""
        return EMRouting(self.pose, ops.sigmoid(self.log_odds), ops.exp(self.log_assignment))


class WindowChildren:
    """The children of windows in one axis, of C = K I, so that parents see them as any others.

    Args:
        votes: Tensor (B, P, K, I, J, H), see `em_routing`.
        activation: Tensor (B, P, K, I).
        fields: `ReceptiveFields`.
        compete: See `EMOptions`.

    Attributes:
        votes, activation: Tensors (B, P, C, J, H) and (B, P, C), at least float32.
    """

    def __init__(self, votes, activation, fields, compete="all"):
        self.votes = self._together(at_least_float32(votes))
        self.activation = self._together(at_least_float32(activation))
        self._fields, self._between = fields, compete
        self._shape = (-1, *votes.shape[1:5])

    def first(self):
        """ln r (B, P, C, J) of equal shares of all parents that see a child."""
        *_, inputs, outputs = self._shape
        shares = np.log(first_assignment(self._fields, inputs, outputs, self._between))
        none = ops.zeros_like(self.votes[..., 0])
        return none + self._together(ops.cast(shares, none.dtype)[None])

    def compete(self, logits):
        """ln r (B, P, C, J) of logits of that shape: see `ReceptiveFields.compete`."""
        logits = ops.reshape(logits, self._shape)
        return self._together(self._fields.log_compete(logits, between=self._between))

    def step(self, log_assignment, pose, log_odds):
        """The `RoutingStep` of ln r (B, P, C, J), of poses and of log-odds of activations."""
        return RoutingStep(ops.reshape(log_assignment, self._shape), pose, log_odds)

    @staticmethod
    def _together(x):
        """(B, P, K, I, ...) as (B, P, K I, ...)."""
        return ops.reshape(x, (-1, x.shape[1], x.shape[2] * x.shape[3], *x.shape[4:]))


def first_assignment(fields, inputs, outputs, compete="all"):
    """Equal shares of all parents that see a child: array (P, K, I, J)."""
    shares = 1 / (fields.parents * (outputs if compete == "all" else 1))[fields.children]
    return np.broadcast_to(shares[..., None, None], (*shares.shape, inputs, outputs))
