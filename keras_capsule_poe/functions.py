"""Supported functions of `core`: units, maps, routing, divergence, likelihood."""

from keras_capsule_poe.core.annealing import (
    annealed_importance,
    annealing_schedule,
    log_partition_bracket,
)
from keras_capsule_poe.core.divergence import chain_step, contrastive_divergence, decoder_rule
from keras_capsule_poe.core.fused.attention import attend
from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.fused.router import route
from keras_capsule_poe.core.fused.shared_maps import SharedMaps
from keras_capsule_poe.core.harmonium import (
    CentredUnits,
    Harmonium,
    TemperedUnits,
    UnitIntervalUnits,
    gibbs_chain,
    gibbs_step,
)
from keras_capsule_poe.core.latent_routing import LatentRouter, latent_free_energy
from keras_capsule_poe.core.maps import DenseMaps, EinsumMaps, ReceptiveFields
from keras_capsule_poe.core.numerics import direction, length
from keras_capsule_poe.core.partition import (
    annealed_partition,
    enumerated_log_partition,
    log_likelihood,
    reverse_annealed_partition,
)
from keras_capsule_poe.core.reference_distributions import (
    CentredGaussian,
    SquashedGaussian,
    UniformBall,
)
from keras_capsule_poe.core.routing import Router, RoutingOptions
from keras_capsule_poe.core.self_attention import SelfAttention
from keras_capsule_poe.core.squash import exponential_squash, squash, unsquash
from keras_capsule_poe.core.units import (
    BinaryUnits,
    CapsuleUnits,
    GaussianUnits,
    free_energy,
    probability,
)
from keras_capsule_poe.models.matrix_capsules.routing import (
    EMOptions,
    VariationalOptions,
    em_routing,
    variational_routing,
)

__all__ = [
    "BinaryUnits",
    "BlockMaps",
    "CapsuleUnits",
    "CentredGaussian",
    "CentredUnits",
    "DenseMaps",
    "EMOptions",
    "EinsumMaps",
    "GaussianUnits",
    "Harmonium",
    "LatentRouter",
    "ReceptiveFields",
    "Router",
    "RoutingOptions",
    "SelfAttention",
    "SharedMaps",
    "SquashedGaussian",
    "TemperedUnits",
    "UniformBall",
    "UnitIntervalUnits",
    "VariationalOptions",
    "annealed_importance",
    "annealed_partition",
    "annealing_schedule",
    "attend",
    "chain_step",
    "contrastive_divergence",
    "decoder_rule",
    "direction",
    "em_routing",
    "enumerated_log_partition",
    "exponential_squash",
    "free_energy",
    "gibbs_chain",
    "gibbs_step",
    "latent_free_energy",
    "length",
    "log_likelihood",
    "log_partition_bracket",
    "probability",
    "reverse_annealed_partition",
    "route",
    "squash",
    "unsquash",
    "variational_routing",
]
