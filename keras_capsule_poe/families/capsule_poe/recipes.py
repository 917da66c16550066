"""Presets of expert capsules, as differences from the defaults."""

from keras_capsule_poe.training.family import Recipe

_REPRESENTATION = {
    "primary": {"target_length": 0.35},
    "encoder": {
        "scale": 5.0,
        "steps": 450,
        "learning_rate": 0.05,
        "iterations": 0,
        "activation_prior": 0.0,
        "balance": 0.0,
        "start": "random",
    },
    "decoder": {
        "steps": 1400,
        "learning_rate": 0.22,
        "feature_scale": 0.2,
        "activity": None,
    },
}

_PAPER = {
    "primary": {"center": False, "target_length": 0.2},
    "encoder": {
        "normalize": "inputs",
        "scale": "mean",
        "steps": 3000,
        "batch_size": 16,
        "learning_rate": 0.4,
        "momentum": 0.5,
        "l2": 1e-4,
        "activation_prior": 0.0,
        "balance": 0.0,
        "start": "noise",
        "frames": False,
    },
    "decoder": {
        "iterations": 3,
        "temperature": 0.1,
        "steps": 900,
        "batch_size": 64,
        "learning_rate": 0.1,
        "momentum": 0.5,
        "feature_scale": 0.47,
        "l2": 1e-3,
        "activity": None,
        "offset": False,
        "conditional": False,
    },
}

# The paper's model with the expert bias that its future work proposes.
_AFFINE = {**_PAPER, "encoder": {**_PAPER["encoder"], "use_bias": True, "bias_rate": 0.3}}

RECIPES = {
    "generation": Recipe("experts compete for whole images: single capsules generate"),
    "representation": Recipe(
        "all capsules code every image, for reconstruction and classification", _REPRESENTATION
    ),
    # Only the units of the learning rates differ from the paper.
    "paper": Recipe(
        "its plain form, without centring, competition and frames: whole codes are decoded well, "
        "single capsules draw little",
        _PAPER,
    ),
    "affine": Recipe(
        "the plain form, its experts with a bias each: they tell images from negatives, and draw "
        "little",
        _AFFINE,
    ),
}
