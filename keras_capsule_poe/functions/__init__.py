"""Pure functions of capsules: units, maps, routing, contrastive divergence, likelihood."""

# The names that are not in `__all__` are internal.
# ruff: noqa: F401

from keras_capsule_poe.functions.annealing import (
    Annealed,
    Bracket,
    annealed_importance,
    annealing_schedule,
    log_mean,
    log_partition_bracket,
)
from keras_capsule_poe.functions.base_measures import (
    CentredGaussian,
    SquashedGaussian,
    UniformBall,
)
from keras_capsule_poe.functions.boltzmann_mixture import (
    BoltzmannMixture,
    MixtureGradient,
    Posterior,
    fit_shares,
)
from keras_capsule_poe.functions.capsule_moments import (
    CapsulePartition,
    disjoint_log_partition,
    draw_independent_experts,
    expert_covariance,
    gaussian_partition,
)
from keras_capsule_poe.functions.coupling_changes import coupling_changes
from keras_capsule_poe.functions.divergence import (
    Divergence,
    chain_step,
    contrastive_divergence,
    decoder_rule,
)
from keras_capsule_poe.functions.em_routing import (
    Clusters,
    EMOptions,
    e_step,
    em_routing,
    em_steps,
    m_step,
)
from keras_capsule_poe.functions.exact_draws import draw_states, state_log_weights
from keras_capsule_poe.functions.flat_machines import flattened, one_capsule
from keras_capsule_poe.functions.harmonium import (
    Harmonium,
    gibbs_chain,
    gibbs_step,
    log_variance_gradient,
)
from keras_capsule_poe.functions.harmonium_partition import (
    AnnealedPartition,
    annealed_partition,
    draw_enumerated,
    enumerated_log_partition,
    log_likelihood,
    reverse_annealed_partition,
)
from keras_capsule_poe.functions.harmonium_units import (
    CentredUnits,
    TemperedUnits,
    UnitIntervalUnits,
)
from keras_capsule_poe.functions.hidden_chain import hidden_chain
from keras_capsule_poe.functions.kernels import block_resampling, elliptical_slice, repeated
from keras_capsule_poe.functions.latent_chain import latent_chain
from keras_capsule_poe.functions.latent_routing import LatentRouter, latent_free_energy
from keras_capsule_poe.functions.maps import DenseMaps, EinsumMaps
from keras_capsule_poe.functions.norms import direction, length
from keras_capsule_poe.functions.partition import annealed_log_partition, exact_log_partition
from keras_capsule_poe.functions.receptive_fields import ReceptiveFields
from keras_capsule_poe.functions.retrieval import conjugate, lyapunov, potential
from keras_capsule_poe.functions.routed_chain import corrected_step
from keras_capsule_poe.functions.routing import Router, Routing, RoutingOptions
from keras_capsule_poe.functions.self_attention import SelfAttention
from keras_capsule_poe.functions.soft_k_means import soft_k_means_loss, soft_k_means_step
from keras_capsule_poe.functions.squash import exponential_squash, squash, unsquash
from keras_capsule_poe.functions.state_tables import StateMoments, state_moments, state_table
from keras_capsule_poe.functions.streamed.attention import attend
from keras_capsule_poe.functions.streamed.blocks import BlockMaps
from keras_capsule_poe.functions.streamed.router import route
from keras_capsule_poe.functions.streamed.shared import SharedMaps
from keras_capsule_poe.functions.tempering import exchange_log_odds, replica_exchange
from keras_capsule_poe.functions.tilts import (
    ImportanceGradient,
    expert_log_weight,
    importance_gradient,
)
from keras_capsule_poe.functions.units import (
    BinaryUnits,
    CapsuleUnits,
    GaussianUnits,
    free_energy,
    probability,
)
from keras_capsule_poe.functions.variational_routing import (
    GaussianWisharts,
    VariationalOptions,
    expected_log_densities,
    expected_log_determinants,
    expected_log_shares,
    parent_posteriors,
    variational_routing,
    variational_steps,
)
from keras_capsule_poe.functions.window_children import EMRouting, RoutingStep

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
