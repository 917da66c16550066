"""Settings and presets of a supervised capsule network."""

from dataclasses import dataclass

from keras_capsule_poe.models.base import classifier_config as classifiers
from keras_capsule_poe.models.base.classifier_config import ClassifierSection, classifier_family
from keras_capsule_poe.training.family import Recipe


@dataclass
class CapsNetSection(ClassifierSection):
    """Settings of a capsule network: layers, loss and training."""

    CHOICES = {
        **ClassifierSection.CHOICES,
        "coefficients": ("routed", "uniform"),
        "padding": ("valid", "same"),
    }

    ALIASES = {
        **ClassifierSection.ALIASES,
        "iterations": ("routing_iterations", None),
        "loss": ("loss_reduction", None),
    }

    body: str = "capsules"
    filters: int = 256
    types: int = 32
    primary_dim: int = 8
    padding: str = "valid"
    divide: bool = False
    dim: int = 16
    coefficients: str = "routed"
    # Counted as Sabour et al. do: with one iteration the coupling coefficients stay uniform.
    routing_iterations: int = 3
    agreement: str = "dot"
    logits: str = "accumulated"
    leaky: bool = False
    use_bias: bool = False
    initial_stddev: float = 0.1
    decoder: str = "dense"
    loss_reduction: str = "sum"
    absent_weight: float = 0.5
    epochs: int | None = 3
    learning_rate_schedule: str = "exponential"


SECTIONS = {"capsnet": CapsNetSection}

_OFFICIAL = {
    "divide": True,
    "use_bias": True,
    "initializer": "official",
    "loss_reduction": "official",
}

# The size of the paper's network for SVHN, with a decoder.
_SMALL = {
    "filters": 64,
    "types": 16,
    "primary_dim": 6,
    "dim": 8,
    "epochs": 10,
    "learning_rate_schedule": "cosine",
}

_EFFICIENT = {
    "body": "efficient",
    "initializer": "he",
    # He normal: Keras computes a fan-in of 10 * 16 * 8 from the shape (J, I, D, E).
    "initial_stddev": (2 / 1280) ** 0.5,
    "augmentation": "efficient",
    "epochs": 10,
    "batch_size": 16,
    "learning_rate": 5e-4,
    "decay_rate": 0.97,
    "decay_steps": None,
    "min_learning_rate": 5e-5,
}

_SHARED = {
    "body": "places",
    "global_pooling": True,
    "agreement": "projection",
    "logits": "replaced",
    "decoder": "none",
    "absent_weight": 0.25,
    "augmentation": "none",
    "epochs": 10,
    "decay_rate": 1.0,
}

_BASELINE = {"network": "cnn", "units": 328, "max_pooling": False}

RECIPES = {
    name: Recipe(text, {"capsnet": settings})
    for name, text, settings in (
        ("paper", "CapsNet of Sabour et al., as in the text of the paper", {}),
        ("official", "CapsNet as in the published code: another loss, and a bias", _OFFICIAL),
        ("small", "CapsNet with a quarter of the parameters, trains in minutes", _SMALL),
        ("efficient", "Efficient-CapsNet, routing by self-attention", _EFFICIENT),
        ("shared", "maps that all places share, k-means routing, no decoder", _SHARED),
        ("baseline", "the convolutional network that the paper compares with", _BASELINE),
    )
}


# Settings that the baseline ignores, and settings that only set its number of parameters.
_OF_CAPSULES = (
    "coefficients routing_iterations agreement logits leaky divide initial_stddev loss_reduction "
    "absent_weight"
).split()
_COUNTED = "types primary_dim padding dim use_bias decoder".split()


def idle(config):
    """Return the settings without effect, each with the reason (a dict)."""
    net, found = config["capsnet"], {}

    def leave_out(why, *names):
        found.update({f"capsnet.{name}": why for name in names})

    if net.body != "capsules":
        why = f"capsnet.body is {net.body!r}"
        leave_out(why, "filters", "types", "primary_dim", "padding", "divide", "max_pooling")
    if net.body == "efficient":
        why = "capsnet.body is 'efficient'"
        leave_out(why, "routing_iterations", "agreement", "logits", "leaky", "use_bias")
    if net.coefficients == "uniform":
        why = "capsnet.coefficients is 'uniform'"
        leave_out(why, "routing_iterations", "agreement", "logits")
    return found | classifiers.idle("capsnet", net, _OF_CAPSULES, _COUNTED)


FAMILY = classifier_family(
    name="capsnet",
    text="a classifier of capsules, trained on labels",
    section="capsnet",
    module="keras_capsule_poe.models.capsnet.training",
    options=(
        "network",
        "classes",
        "coefficients",
        "routing-iterations",
        "optimizer",
        "augmentation",
        "until-accuracy",
    ),
    sections=SECTIONS,
    recipes=RECIPES,
    idle=idle,
)
