"""Presets of expert neurons, as differences from the defaults."""

from keras_capsule_poe.training.family import Recipe

_BOLTZMANN = {"routing": "fixed", "scale": 1.0, "balance": 0.0}
_LATENT = {"routing": "latent", "scale": 1.0, "balance": 0.0}
_MIXTURE = {
    "routing": "mixture",
    "algorithm": "ml",
    "scale": 1.0,
    "balance": 0.3,
    "learning_rate": 0.02,
    "weight_decay": 0.0,
}

RECIPES = {
    "held": Recipe("each image keeps its own routing: capsules compete for whole images"),
    "latent": Recipe("each part has one parent, which is inferred", {"experts": _LATENT}),
    "mixture": Recipe(
        "each image has one capsule, which is inferred; exact maximum likelihood",
        {"primary": {"target_length": 1.2}, "experts": _MIXTURE},
    ),
    "boltzmann": Recipe(
        "no routing: one restricted Boltzmann machine of all neurons", {"experts": _BOLTZMANN}
    ),
}
