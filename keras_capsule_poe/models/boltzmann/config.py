"""Settings and presets of a restricted Boltzmann machine of images."""

from dataclasses import dataclass, replace

from keras_capsule_poe.models.base import feature_config as features
from keras_capsule_poe.models.base import verdicts
from keras_capsule_poe.models.base.feature_config import idle_steps
from keras_capsule_poe.training.family import Family, Recipe, Stage, lazily


@dataclass
class RbmSection:
    """Settings of the machine, its Gibbs chains and its training."""

    ALIASES = {
        "gibbs_steps": ("cd_steps", None),
        "chains_start": ("chains_initializer", None),
        "final_rate": ("min_learning_rate_fraction", None),
    }

    visible: str = "pixels"
    binarize: str | None = "stochastic"
    neurons: str = "bernoulli"
    hidden: int = 500
    centering: bool = True
    algorithm: str = "pcd"
    cd_steps: int = 1
    chains: int = 100
    chains_initializer: str = "data"
    temperatures: int = 10
    epochs: int | None = None
    steps: int = 24_000
    batch_size: int = 100
    learning_rate: float = 0.05
    momentum: float = 0.0
    min_learning_rate_fraction: float = 0.01
    weight_decay: float = 0.0
    offset_rate: float = 0.01
    initial_stddev: float = 0.01
    burn_in: int = 100


SECTIONS = {**features.SECTIONS, "rbm": RbmSection}

# Sixteen hidden units have 65,536 states, which can be enumerated: the likelihood is exact.
_SMALL = {
    "rbm": {
        "binarize": "threshold",
        "hidden": 16,
        "steps": 30_000,
        "learning_rate": 0.5,
    }
}

# As many maps as a product of expert capsules: a baseline of equal size.
_FEATURES = {
    "rbm": {
        "visible": "features",
        "hidden": 320,
        "learning_rate": 0.002,
        "momentum": 0.5,
        "steps": 4_000,
    }
}

RECIPES = {
    "pixels": Recipe("500 hidden neurons over pixels, persistent chains"),
    "small": Recipe("16 hidden neurons, whose likelihood is exact", _SMALL),
    "features": Recipe("320 hidden neurons over the features of an autoencoder", _FEATURES),
}


def idle(config):
    """Return the settings without effect, each with the reason (a dict)."""
    rbm = config["rbm"]
    found = idle_steps(config, "autoencoder", "rbm")
    if rbm.visible != "features":
        why = f"rbm.visible is {rbm.visible!r}"
        found |= {f"{name}.{key}": why for name in features.SECTIONS for key in vars(config[name])}
    else:
        found |= dict.fromkeys(("rbm.binarize", "rbm.neurons"), "rbm.visible is 'features'")
    if rbm.neurons != "bernoulli":
        found["rbm.binarize"] = f"rbm.neurons is {rbm.neurons!r}"
    if rbm.algorithm == "cd":
        found["rbm.chains"] = "rbm.algorithm is 'cd', whose chains are as many as images a batch"
    if rbm.algorithm != "pt":
        found["rbm.temperatures"] = f"rbm.algorithm is {rbm.algorithm!r}"
    if not rbm.centering:
        found["rbm.offset_rate"] = "rbm.centering is false"
    return found


def _of_features(config):
    return config["rbm"].visible == "features"


def verdict(stages):
    """Return sentences on the metrics of finished stages."""
    error = stages.get("rbm", {}).get("held_out_relative_error")
    return verdicts.explained(error, "Reconstructions")


FAMILY = Family(
    verdict=verdict,
    name="rbm",
    text="a restricted Boltzmann machine, with a likelihood and a Gibbs sampler",
    sections=SECTIONS,
    stages=(
        *(replace(stage, when=_of_features) for stage in features.STAGES),
        Stage(
            "rbm",
            lazily("keras_capsule_poe.models.boltzmann.training:rbm"),
            section="rbm",
            reads=features.CACHE,
            writes=("rbm/model.keras",),
        ),
        Stage(
            "export",
            lazily("keras_capsule_poe.models.boltzmann.training:export"),
            writes=("model.keras",),
            pictures=("samples.png", "reconstructions.png"),
            alone=True,
        ),
    ),
    recipes=RECIPES,
    options=features.OPTIONS
    | {
        name: f"rbm.{name.replace('-', '_')}"
        for name in (
            "visible",
            "binarize",
            "neurons",
            "hidden",
            "algorithm",
            "cd-steps",
            "chains",
        )
    },
    check=lazily("keras_capsule_poe.models.boltzmann.training:check"),
    outline=lazily("keras_capsule_poe.models.boltzmann.training:outline"),
    smallest=lazily("keras_capsule_poe.models.boltzmann.training:smallest"),
    idle=idle,
    load=lazily("keras_capsule_poe.models.boltzmann.training:load"),
    assemble=lazily("keras_capsule_poe.models.boltzmann.training:trained_model"),
)
