"""Pure functions of capsules: units, maps, routing, contrastive divergence."""

from keras_capsule_poe.functions.divergence import (
    Divergence,
    chain_step,
    contrastive_divergence,
    decoder_rule,
)
from keras_capsule_poe.functions.harmonium import (
    Harmonium,
    gibbs_chain,
    gibbs_step,
    log_variance_gradient,
)
from keras_capsule_poe.functions.harmonium_partition import (
    AnnealedPartition,
    annealed_importance,
    annealing_schedule,
    enumerated_log_partition,
    log_likelihood,
    reverse_annealed_importance,
)
from keras_capsule_poe.functions.harmonium_units import (
    CentredUnits,
    TemperedUnits,
    UnitIntervalUnits,
)
from keras_capsule_poe.functions.maps import DenseMaps, EinsumMaps
from keras_capsule_poe.functions.norms import direction, length
from keras_capsule_poe.functions.routing import Router, Routing, RoutingOptions
from keras_capsule_poe.functions.squash import squash, unsquash
from keras_capsule_poe.functions.streamed.blocks import BlockMaps
from keras_capsule_poe.functions.streamed.router import route
from keras_capsule_poe.functions.tempering import exchange_log_odds, replica_exchange
from keras_capsule_poe.functions.units import (
    BinaryUnits,
    CapsuleUnits,
    GaussianUnits,
    free_energy,
    probability,
)

__all__ = [
    "AnnealedPartition",
    "BinaryUnits",
    "BlockMaps",
    "CapsuleUnits",
    "CentredUnits",
    "DenseMaps",
    "Divergence",
    "EinsumMaps",
    "GaussianUnits",
    "Harmonium",
    "Router",
    "Routing",
    "RoutingOptions",
    "TemperedUnits",
    "UnitIntervalUnits",
    "annealed_importance",
    "annealing_schedule",
    "chain_step",
    "contrastive_divergence",
    "decoder_rule",
    "direction",
    "enumerated_log_partition",
    "exchange_log_odds",
    "free_energy",
    "gibbs_chain",
    "gibbs_step",
    "length",
    "log_likelihood",
    "log_variance_gradient",
    "probability",
    "replica_exchange",
    "reverse_annealed_importance",
    "route",
    "squash",
    "unsquash",
]
