"""Settings and presets of a network of matrix capsules."""

from dataclasses import dataclass

from keras_capsule_poe.models.base import classifier_config as classifiers
from keras_capsule_poe.models.base.classifier_config import ClassifierSection, classifier_family
from keras_capsule_poe.training.family import Recipe

# Default learning rates.
RATES = {"em": 0.02, "variational": 0.003, "cnn": 1e-3}


@dataclass
class MatrixSection(ClassifierSection):
    """Settings of a network of matrix capsules: layers, routing, loss and training."""

    CHOICES = {
        **ClassifierSection.CHOICES,
        "routing": ("em", "variational"),
        "loss": ("spread", "margin", "cross-entropy"),
        "loss_reduction": ("sum", "official"),
    }

    ALIASES = {
        **ClassifierSection.ALIASES,
        "iterations": ("routing_iterations", None),
        "inner_iterations": ("inner_routing_iterations", None),
        "spread_scaling": ("loss_reduction", None),
        "rise": ("margin_schedule", None),
    }

    # A, B, C and D of Hinton et al.
    filters: int = 64
    primary_types: int = 8
    types: int = 16
    last_types: int = 16
    size: int = 4
    coordinates: bool = True
    routing: str = "em"
    routing_iterations: int = 3  # M steps, one more than E steps
    # Below the class capsules. None: `routing_iterations`.
    inner_routing_iterations: int | None = None
    schedule: str = "official"
    inverse_temperature: float = 1.0
    normalize_mass: bool = True
    class_temperature: float = 1.0  # factor on `inverse_temperature` for the class capsules
    compete: str = "all"
    damping: float = 0.0
    variance_floor: float = 0.1
    assignment_temperature: float = 4.0
    activation_scale: float = 10.0
    implementation: str = "compiled"
    loss: str = "spread"
    loss_reduction: str = "sum"  # `scaling` of the `SpreadLoss`
    first_margin: float = 0.2
    last_margin: float = 0.9
    margin_steps: int | None = None
    margin_schedule: str = "linear"
    augmentation: str = "none"
    steps: int = 4600
    batch_size: int = 64
    initializer: str = "he"
    learning_rate: float | None = None  # None: the one in `RATES` for the network
    decay_steps: int | None = 20_000

    @property
    def first_rate(self):
        if self.learning_rate is not None:
            return self.learning_rate
        if self.network == "cnn":
            return RATES["cnn"]
        # The layers' constructors reject an unknown routing.
        return RATES.get(self.routing, RATES["em"])


SECTIONS = {"matrix": MatrixSection}

# With a third iteration, parents with so few children learn more slowly.
_SMALL = {"routing_iterations": 2}
_PAPER = {"filters": 32, "primary_types": 32, "types": 32, "last_types": 32}

# Settings of the published code that differ from the paper. Its logits are twice ours, since its
# costs use variances and ours use standard deviations.
_OFFICIAL = {
    **_PAPER,
    "compete": "places",
    "damping": 0.1,
    "variance_floor": 5e-4,
    "assignment_temperature": 1.0,
    "normalize_mass": False,
    "inverse_temperature": 0.02,
    "class_temperature": 0.25,
    "initializer": "official",
    "loss_reduction": "official",
    "activation_scale": -2500.0,
    "last_margin": 0.99,
    "margin_steps": 700_000,
    "margin_schedule": "official",
    "learning_rate": 3e-3,
    "learning_rate_schedule": "exponential",
}

RECIPES = {
    name: Recipe(text, {"matrix": settings})
    for name, text, settings in (
        ("small", "small network of Hinton et al., 68,618 parameters for stereo images", _SMALL),
        ("paper", "large network of Hinton et al., 316,650 parameters", _PAPER),
        ("official", "large network as in the published code, not trained here", _OFFICIAL),
    )
}

_OF_EM = (
    "schedule inverse_temperature normalize_mass class_temperature compete damping variance_floor "
    "assignment_temperature activation_scale implementation"
).split()
_OF_SPREAD = "loss_reduction first_margin last_margin margin_steps margin_schedule".split()
_OF_CAPSULES = [
    "routing",
    "routing_iterations",
    "inner_routing_iterations",
    "loss",
    *_OF_SPREAD,
    *_OF_EM,
]
_COUNTED = "primary_types types last_types size coordinates decoder".split()


def idle(config):
    """Return the settings without effect, each with the reason (a dict)."""
    net, found = config["matrix"], {}
    if net.network == "capsules":
        if net.routing != "em":
            why = f"matrix.routing is {net.routing!r}"
            found |= {f"matrix.{name}": why for name in _OF_EM}
        if net.loss != "spread":
            why = f"matrix.loss is {net.loss!r}"
            found |= {f"matrix.{name}": why for name in _OF_SPREAD}
    return found | classifiers.idle("matrix", net, _OF_CAPSULES, _COUNTED)


FAMILY = classifier_family(
    name="matrix-capsules",
    text="a classifier of matrix capsules, routed by EM, trained on labels",
    section="matrix",
    module="keras_capsule_poe.models.matrix_capsules.training",
    options=(
        "network",
        "classes",
        "routing",
        "routing-iterations",
        "loss",
        "optimizer",
        "augmentation",
        "until-accuracy",
    ),
    sections=SECTIONS,
    recipes=RECIPES,
    idle=idle,
)
