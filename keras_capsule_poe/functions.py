"""Supported functions of `core`: units, maps, routing, divergence, likelihood."""

from keras_capsule_poe.core.divergence import chain_step, contrastive_divergence, decoder_rule
from keras_capsule_poe.core.fused.attention import SelfAttention, attend
from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.fused.router import route
from keras_capsule_poe.core.fused.shared_maps import SharedMaps
from keras_capsule_poe.core.harmonium import Harmonium, gibbs_chain, gibbs_step
from keras_capsule_poe.core.likelihood import (
    annealed_importance,
    annealed_partition,
    annealing_schedule,
    enumerated_log_partition,
    log_likelihood,
    log_partition_bracket,
    reverse_annealed_partition,
)
from keras_capsule_poe.core.maps import DenseMaps, EinsumMaps, ReceptiveFields
from keras_capsule_poe.core.mcmc import CentredGaussian, SquashedGaussian, UniformBall
from keras_capsule_poe.core.numerics import direction, exponential_squash, length, squash, unsquash
from keras_capsule_poe.core.routing import LatentRouter, Router, RoutingOptions, latent_free_energy
from keras_capsule_poe.core.units import (
    BinaryUnits,
    CapsuleUnits,
    CentredUnits,
    GaussianUnits,
    OnOffUnits,
    TemperedUnits,
    UnitIntervalUnits,
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
    "OnOffUnits",
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
