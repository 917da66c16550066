"""Settings of the optional second layer over the expert neurons."""

from dataclasses import dataclass

from keras_capsule_poe.models.base import feature_config as features
from keras_capsule_poe.models.base import verdicts
from keras_capsule_poe.training.family import Family, Recipe, Stage, lazily


@dataclass
class TopSection:
    """Settings of the Boltzmann machine for joint samples; off if `capsules` is 0."""

    ALIASES = {
        "passes": ("cd_steps", None),
        "final_rate": ("min_learning_rate_fraction", None),
    }

    capsules: int = 0
    dim: int = 16
    algorithm: str = "pcd"
    cd_steps: int = 1
    chains: int = 128
    epochs: int | None = None
    steps: int = 2000
    batch_size: int = 128
    learning_rate: float = 0.05
    momentum: float = 0.5
    min_learning_rate_fraction: float = 0.05
    weight_decay: float = 1e-4
    offset_rate: float = 0.01
    initial_stddev: float = 0.01


def has_top(config):
    """Return whether the run has a second layer."""
    return config["top"].capsules != 0


def idle_top(config):
    """Return the second layer's settings without effect, each with the reason (a dict)."""
    top = config["top"]
    if not has_top(config):
        names = (name for name in vars(top) if name != "capsules")
        return {f"top.{name}": "top.capsules is 0" for name in names}
    if top.algorithm == "cd":
        return {"top.chains": "top.algorithm is 'cd'"}
    return {}


@dataclass
class NeuronFeaturesSection(features.PrimarySection):
    """Settings of primary capsules as visible neurons with unit noise variance."""

    target_length: float = 0.5


@dataclass
class ExpertsSection:
    """Settings of the expert neurons: routing and training by contrastive divergence."""

    ALIASES = {
        "iterations": ("routing_iterations", features.counted_with_first),
        "normalize": ("softmax_over", None),
        "activation_prior": ("activation_prior_weight", None),
        "scale": ("coefficient_sum", None),
        "balance": ("load_balancing", None),
        "passes": ("cd_steps", None),
        "final_rate": ("min_learning_rate_fraction", None),
        "start": ("initializer", None),
        "hidden_start": ("initial_hidden_bias", None),
        "remembered": ("posterior_states", None),
    }

    capsules: int = 20
    dim: int = 16
    routing: str = "held"
    centering: bool = False
    learn_variance: bool = False
    # Counted as Sabour et al. do: with one iteration the coupling coefficients stay uniform.
    routing_iterations: int = 4
    temperature: float = 0.1
    softmax_over: str = "outputs"
    activation_prior_weight: float = 2.0
    coefficient_sum: float | str = 5.0
    load_balancing: float = 0.03
    implementation: str = "streamed"
    algorithm: str = "cd"
    cd_steps: int = 1
    chains: int = 128
    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128
    learning_rate: float = 0.003
    momentum: float = 0.9
    min_learning_rate_fraction: float = 0.1
    weight_decay: float = 1e-3
    offset_rate: float = 0.01
    initializer: str = "clusters"
    image_length: float = 0.3
    initial_hidden_bias: float = -4.0
    initial_stddev: float = 0.01
    posterior_states: int = 256
    joint_steps: int = 100


SECTIONS = {
    **features.SECTIONS,
    "primary": NeuronFeaturesSection,
    "experts": ExpertsSection,
    "top": TopSection,
}


def idle(config):
    """Return the settings without effect, each with the reason (a dict)."""
    found = features.idle_steps(config, "autoencoder", "experts", "top") | idle_top(config)
    experts = config["experts"]
    if experts.routing == "fixed":
        why = "experts.routing is 'fixed'"
        names = ("routing_iterations", "temperature", "activation_prior_weight", "load_balancing")
        found |= {f"experts.{name}": why for name in names}
    elif experts.routing == "latent":
        why = "experts.routing is 'latent', whose agreement is its energy"
        names = ("temperature", "activation_prior_weight", "load_balancing", "offset_rate")
        found |= {f"experts.{name}": why for name in names}
    elif experts.routing == "mixture":
        why = "experts.routing is 'mixture', whose gradient is exact"
        names = (
            "routing_iterations", "temperature", "softmax_over", "activation_prior_weight",
            "centering", "learn_variance", "implementation", "cd_steps", "chains", "offset_rate",
        )  # fmt: skip
        found |= {f"experts.{name}": why for name in names}
        if experts.initializer == "clusters":
            why = "capsules start as the means and principal axes of clusters"
            found |= {"experts.image_length": why, "experts.initial_hidden_bias": why}
    if experts.initializer == "noise":
        found["experts.image_length"] = "experts.initializer is 'noise'"
    else:
        found["experts.initial_stddev"] = f"experts.initializer is {experts.initializer!r}"
    if not experts.centering:
        found["experts.offset_rate"] = "experts.centering is off"
    if experts.algorithm == "cd":
        found["experts.chains"] = "experts.algorithm is 'cd'"
    return found


_BOLTZMANN = {"routing": "fixed", "coefficient_sum": 1.0, "load_balancing": 0.0}
_LATENT = {"routing": "latent", "coefficient_sum": 1.0, "load_balancing": 0.0}
_MIXTURE = {
    "routing": "mixture",
    "algorithm": "ml",
    "coefficient_sum": 1.0,
    "load_balancing": 0.3,
    "learning_rate": 0.02,
    "weight_decay": 0.0,
}

RECIPES = {
    "held": Recipe("routing is found from each image and kept along its chain"),
    "latent": Recipe(
        "each part of an image has one parent capsule, a random variable", {"experts": _LATENT}
    ),
    "mixture": Recipe(
        "each image has one capsule; likelihood, gradient and samples are exact",
        {"primary": {"target_length": 1.2}, "experts": _MIXTURE},
    ),
    "boltzmann": Recipe(
        "no routing: one restricted Boltzmann machine of all neurons", {"experts": _BOLTZMANN}
    ),
}


def verdict(stages):
    """Return sentences on the metrics of finished stages."""
    experts = stages.get("experts", {})
    error = experts.get("held_out_relative_error")
    return [*verdicts.explained(error, "Reconstructions"), *verdicts.usage(experts.get("won"))]


FAMILY = Family(
    verdict=verdict,
    name="neurons",
    text="a product of expert neurons in capsules, over the same features",
    sections=SECTIONS,
    stages=(
        *features.STAGES,
        Stage(
            "experts",
            lazily("keras_capsule_poe.models.neurons.training:experts"),
            section="experts",
            reads=features.CACHE,
            writes=("experts/model.keras", "experts/visited.npz"),
        ),
        Stage(
            "top",
            lazily("keras_capsule_poe.models.neurons.training:top"),
            section="top",
            reads=features.CACHE,
            writes=("top/model.keras",),
            when=has_top,
        ),
        Stage(
            "export",
            lazily("keras_capsule_poe.models.neurons.training:export"),
            writes=("model.keras",),
            pictures=("samples-*.png", "reconstructions.png"),
            alone=True,
        ),
    ),
    recipes=RECIPES,
    options=features.OPTIONS,
    check=lazily("keras_capsule_poe.models.neurons.training:check"),
    outline=lazily("keras_capsule_poe.models.neurons.training:outline"),
    smallest=lazily("keras_capsule_poe.models.base.feature_building:smallest"),
    idle=idle,
    load=lazily("keras_capsule_poe.models.neurons.training:load"),
    assemble=lazily("keras_capsule_poe.models.neurons.training:trained_model"),
)
