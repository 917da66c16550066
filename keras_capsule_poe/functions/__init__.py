"""Pure functions of capsules: units, maps, routing, contrastive divergence."""

from keras_capsule_poe.functions.divergence import (
    Divergence,
    chain_step,
    contrastive_divergence,
    decoder_rule,
)
from keras_capsule_poe.functions.maps import DenseMaps, EinsumMaps
from keras_capsule_poe.functions.norms import direction, length
from keras_capsule_poe.functions.routing import Router, Routing, RoutingOptions
from keras_capsule_poe.functions.squash import squash, unsquash
from keras_capsule_poe.functions.streamed.blocks import BlockMaps
from keras_capsule_poe.functions.streamed.router import route
from keras_capsule_poe.functions.units import (
    BinaryUnits,
    CapsuleUnits,
    GaussianUnits,
    free_energy,
    probability,
)

__all__ = [
    "BinaryUnits",
    "BlockMaps",
    "CapsuleUnits",
    "DenseMaps",
    "Divergence",
    "EinsumMaps",
    "GaussianUnits",
    "Router",
    "Routing",
    "RoutingOptions",
    "chain_step",
    "contrastive_divergence",
    "decoder_rule",
    "direction",
    "free_energy",
    "length",
    "probability",
    "route",
    "squash",
    "unsquash",
]
