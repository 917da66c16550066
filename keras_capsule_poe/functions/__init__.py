"""Pure functions of capsules: squash, votes, routing, energy, contrastive divergence."""

from keras_capsule_poe.functions.divergence import (
    Divergence,
    backproject,
    correlation,
    damped,
    decoder_divergence,
    encoder_divergence,
)
from keras_capsule_poe.functions.energy import (
    expert_free_energy,
    free_energy,
    log_odds,
    probability,
)
from keras_capsule_poe.functions.norms import direction, length
from keras_capsule_poe.functions.routing import (
    Routing,
    agreement,
    collective,
    route,
    routing_coefficients,
    votes,
)
from keras_capsule_poe.functions.squash import squash, unsquash

__all__ = [
    "Divergence",
    "Routing",
    "agreement",
    "backproject",
    "collective",
    "correlation",
    "damped",
    "decoder_divergence",
    "direction",
    "encoder_divergence",
    "expert_free_energy",
    "free_energy",
    "length",
    "log_odds",
    "probability",
    "route",
    "routing_coefficients",
    "squash",
    "unsquash",
    "votes",
]
