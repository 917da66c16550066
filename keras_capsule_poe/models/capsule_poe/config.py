"""Settings and presets of a product of expert capsules."""

from dataclasses import dataclass

from keras_capsule_poe.models.base import feature_config as features
from keras_capsule_poe.models.base import verdicts
from keras_capsule_poe.training.family import Family, Recipe, Stage, lazily


@dataclass
class ContrastiveSection:
    """Settings of encoder and decoder: routing and training by contrastive divergence."""

    ALIASES = {
        "iterations": ("routing_iterations", features.counted_with_first),
        "normalize": ("softmax_over", None),
        "scale": ("coefficient_sum", None),
        "final_rate": ("min_learning_rate_fraction", None),
        "l2": ("weight_decay", None),
    }

    # Counted as Sabour et al. do: with one iteration the coupling coefficients stay uniform.
    routing_iterations: int = 4
    temperature: float = 1.0
    softmax_over: str = "outputs"
    coefficient_sum: float | str = "mean"
    implementation: str = "streamed"
    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128
    learning_rate: float = 0.02
    momentum: float = 0.9
    min_learning_rate_fraction: float = 0.1
    weight_decay: float = 1e-3
    initial_stddev: float = 1e-3
    use_bias: bool = False
    bias_rate: float = 1.0


@dataclass
class EncoderSection(ContrastiveSection):
    """Settings of the capsule encoder with maps W, and of the statistics of its codes."""

    ALIASES = {
        **ContrastiveSection.ALIASES,
        "start": ("initializer", None),
        "activation_prior": ("activation_prior_weight", None),
        "chain_steps": ("cd_steps", None),
        "balance": ("load_balancing", None),
        "frames": ("whitening", None),
        "visited_components": ("posterior_components", None),
    }

    capsules: int = 20
    dim: int = 16
    coefficient_sum: float | str = 3.0
    learning_rate: float = 0.2
    temperature: float = 0.1
    initializer: str = "principal"
    image_length: float = 0.5
    activation_prior_weight: float = 2.0
    cd_steps: int = 1
    load_balancing: float = 0.03
    whitening: bool = True
    amplitude: bool = False
    posterior_components: int = 10
    joint_components: int = 3
    joint_rank: int = 64


@dataclass
class DecoderSection(ContrastiveSection):
    """Settings of the capsule decoder with maps U."""

    routing_iterations: int = 1
    learning_rate: float = 0.5
    weight_decay: float = 1e-6
    softmax_over: str = "inputs"
    feature_scale: float = 1.0
    activity: float | None = 2.0
    offset: bool = True
    conditional: bool = True


SECTIONS = {**features.SECTIONS, "encoder": EncoderSection, "decoder": DecoderSection}


def idle(config):
    """Return the settings without effect, each with the reason (a dict)."""
    found = features.idle_steps(config, "autoencoder", "encoder", "decoder")
    encoder = config["encoder"]
    for name in ("encoder", "decoder"):
        if not config[name].use_bias:
            found[f"{name}.bias_rate"] = f"{name}.use_bias is off"
        if config[name].routing_iterations == 1:
            why = f"{name}.routing_iterations is 1"
            found[f"{name}.temperature"] = why
            if name == "encoder":
                found["encoder.activation_prior_weight"] = why
    if encoder.softmax_over == "inputs":
        why = "encoder.softmax_over is 'inputs', where the softmax cancels it"
        found |= {"encoder.activation_prior_weight": why, "encoder.load_balancing": why}
    if encoder.initializer == "noise":
        found["encoder.image_length"] = "encoder.initializer is 'noise'"
    else:
        found["encoder.initial_stddev"] = f"encoder.initializer is {encoder.initializer!r}"
    return found


_REPRESENTATION = {
    "primary": {"target_length": 0.35},
    "encoder": {
        "coefficient_sum": 5.0,
        "steps": 450,
        "learning_rate": 0.05,
        "routing_iterations": 1,
        "activation_prior_weight": 0.0,
        "load_balancing": 0.0,
        "initializer": "random",
    },
    "decoder": {
        "steps": 1400,
        "learning_rate": 0.22,
        "weight_decay": 1e-4,
        "feature_scale": 0.2,
        "activity": None,
    },
}

# The decoder's coordinates of codes with an amplitude have unit variance, hence the low rates.
_DETAIL = {
    "encoder": {
        "capsules": 40,
        "dim": 80,
        "amplitude": True,
        "steps": 450,
        "joint_components": 1,
    },
    "decoder": {"learning_rate": 0.1, "min_learning_rate_fraction": 0.02, "activity": 4.0},
}

_PAPER = {
    "primary": {"center": False, "target_length": 0.2},
    "encoder": {
        "softmax_over": "inputs",
        "coefficient_sum": "mean",
        "steps": 3000,
        "batch_size": 16,
        "learning_rate": 0.4,
        "momentum": 0.5,
        "weight_decay": 1e-4,
        "activation_prior_weight": 0.0,
        "load_balancing": 0.0,
        "initializer": "noise",
        "whitening": False,
    },
    "decoder": {
        "routing_iterations": 4,
        "temperature": 0.1,
        "steps": 900,
        "batch_size": 64,
        "learning_rate": 0.1,
        "momentum": 0.5,
        "feature_scale": 0.47,
        "weight_decay": 1e-3,
        "activity": None,
        "offset": False,
        "conditional": False,
    },
}

# The paper's model with the expert bias that its future work proposes.
_AFFINE = {**_PAPER, "encoder": {**_PAPER["encoder"], "use_bias": True, "bias_rate": 0.3}}

RECIPES = {
    "generation": Recipe("experts compete for whole images, and single capsules draw images"),
    "representation": Recipe(
        "all capsules code every image, for reconstruction and classification", _REPRESENTATION
    ),
    "detail": Recipe(
        "more and larger capsules with an amplitude: codes keep more of an image, and training "
        "takes twice as long",
        _DETAIL,
    ),
    # Only the units of the learning rates differ from the paper.
    "paper": Recipe(
        "the model as printed in the paper: whole codes are decoded well, single capsules draw "
        "little",
        _PAPER,
    ),
    "affine": Recipe(
        "the model of the paper with expert biases, which separate images from negatives; single "
        "capsules draw little",
        _AFFINE,
    ),
}


def verdict(stages):
    """Return sentences on the metrics of finished stages."""
    used = stages.get("encoder", {}).get("capsules", {})
    error = stages.get("decoder", {}).get("held_out_relative_error")
    return [
        *verdicts.explained(error, "Whole codes"),
        *verdicts.usage(used.get("won")),
        *verdicts.classes(used),
    ]


def _stage(name, **more):
    return Stage(name, lazily(f"keras_capsule_poe.models.capsule_poe.training:{name}"), **more)


FAMILY = Family(
    verdict=verdict,
    name="capsules",
    text="a product of expert capsules, trained without labels by contrastive divergence",
    sections=SECTIONS,
    stages=(
        *features.STAGES,
        _stage(
            "encoder",
            section="encoder",
            reads=features.CACHE,
            writes=("encoder/model.keras", "encoder/codes.npy", "encoder/visited.npz"),
        ),
        _stage("decoder", section="decoder", reads=features.CACHE, writes=("decoder/model.keras",)),
        _stage(
            "export",
            writes=("model.keras",),
            pictures=("samples-*.png", "reconstructions.png"),
            alone=True,
        ),
    ),
    recipes=RECIPES,
    options=features.OPTIONS,
    check=lazily("keras_capsule_poe.models.capsule_poe.training:check"),
    outline=lazily("keras_capsule_poe.models.capsule_poe.training:outline"),
    smallest=lazily("keras_capsule_poe.models.base.feature_building:smallest"),
    idle=idle,
    former_defaults={
        "encoder.initializer": "clusters",
        "decoder.weight_decay": 1e-4,
    },
    load=lazily("keras_capsule_poe.models.capsule_poe.training:load"),
    assemble=lazily("keras_capsule_poe.models.capsule_poe.training:trained_model"),
)
