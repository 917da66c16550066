"""Children shared by windows, and their assignment to parents."""

from collections import namedtuple

import numpy as np
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32

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

    def step(self, log_assignment, pose, log_odds):
        """Return the `RoutingStep` for ln r (B, P, C, J), poses and log-odds."""
        return RoutingStep(ops.reshape(log_assignment, self._shape), pose, log_odds)

    @staticmethod
    def _together(x):
        """Reshape (B, P, K, I, ...) to (B, P, K I, ...)."""
        return ops.reshape(x, (-1, x.shape[1], x.shape[2] * x.shape[3], *x.shape[4:]))


def first_assignment(fields, inputs, outputs, compete="all"):
    """Return equal shares (P, K, I, J) of all parents that see a child."""
    shares = 1 / (fields.parents * (outputs if compete == "all" else 1))[fields.children]
    return np.broadcast_to(shares[..., None, None], (*shares.shape, inputs, outputs))
