"""The settings of a network of matrix capsules, and its recipes."""

from dataclasses import dataclass

from keras_capsule_poe.families.classifiers import sections as classifiers
from keras_capsule_poe.families.classifiers.sections import ClassifierSection
from keras_capsule_poe.training.family import Recipe

# Learning rates, where none is given.
RATES = {"em": 0.02, "variational": 0.003, "cnn": 1e-3}


@dataclass
class MatrixSection(ClassifierSection):
    """The network, its loss, and its training.

    `filters`, `primary_types`, `types` and `last_types` are A, B, C and D of Hinton et al.
    `inner_iterations` are those of the layers below the classes, None: as many as `iterations`;
    `class_temperature` is the share of the inverse temperature that the class capsules have,
    `spread_scaling` the `scaling` of the `SpreadLoss`. A control has filters of its own. Without
    a `learning_rate` it is the one of `RATES` that suits the network.
    """

    CHOICES = {
        **ClassifierSection.CHOICES,
        "routing": ("em", "variational"),
        "loss": ("spread", "margin", "cross-entropy"),
        "spread_scaling": ("sum", "official"),
    }

    filters: int = 64
    primary_types: int = 8
    types: int = 16
    last_types: int = 16
    size: int = 4
    coordinates: bool = True
    routing: str = "em"
    iterations: int = 3
    inner_iterations: int | None = None
    schedule: str = "official"
    inverse_temperature: float = 1.0
    normalize_mass: bool = True
    class_temperature: float = 1.0
    compete: str = "all"
    damping: float = 0.0
    variance_floor: float = 0.1
    assignment_temperature: float = 4.0
    activation_scale: float = 10.0
    implementation: str = "compiled"
    loss: str = "spread"
    spread_scaling: str = "sum"
    first_margin: float = 0.2
    last_margin: float = 0.9
    margin_steps: int | None = None
    rise: str = "linear"
    augmentation: str = "none"
    steps: int = 4600
    batch_size: int = 64
    initial: str = "he"
    learning_rate: float | None = None
    decay_steps: int | None = 20_000

    @property
    def first_rate(self):
        if self.learning_rate is not None:
            return self.learning_rate
        if self.network == "cnn":
            return RATES["cnn"]
        # Another routing is refused where the layers are built.
        return RATES.get(self.routing, RATES["em"])


SECTIONS = {"matrix": MatrixSection}

# With a third iteration parents of so few children learn more slowly.
_SMALL = {"iterations": 2}
_PAPER = {"filters": 32, "primary_types": 32, "types": 32, "last_types": 32}

# As the published code departs from the paper: competition, damping, starts, temperatures, loss.
# Its logits are twice these: costs there are of variances, here of standard deviations.
_OFFICIAL = {
    **_PAPER,
    "compete": "places",
    "damping": 0.1,
    "variance_floor": 5e-4,
    "assignment_temperature": 1.0,
    "normalize_mass": False,
    "inverse_temperature": 0.02,
    "class_temperature": 0.25,
    "initial": "official",
    "spread_scaling": "official",
    "activation_scale": -2500.0,
    "last_margin": 0.99,
    "margin_steps": 700_000,
    "rise": "official",
    "learning_rate": 3e-3,
    "fall": "exponential",
}

RECIPES = {
    name: Recipe(text, {"matrix": settings})
    for name, text, settings in (
        ("small", "the small network of Hinton et al., 68,618 parameters for stereo pairs", _SMALL),
        ("paper", "their large one, of 316,650", _PAPER),
        ("official", "the same, as their code has it", _OFFICIAL),
    )
}

_OF_EM = (
    "schedule inverse_temperature normalize_mass class_temperature compete damping variance_floor "
    "assignment_temperature activation_scale implementation"
).split()
_OF_SPREAD = "spread_scaling first_margin last_margin margin_steps rise".split()
_OF_CAPSULES = ["routing", "iterations", "inner_iterations", "loss", *_OF_SPREAD, *_OF_EM]
_COUNTED = "primary_types types last_types size coordinates decoder".split()


def idle(config):
    """Settings that mean nothing beside others, and why: a dict.

    Args:
        config: `RunConfig` of these sections.
    """
    net, found = config["matrix"], {}
    if net.network == "capsules":
        if net.routing != "em":
            why = f"matrix.routing is {net.routing!r}"
            found |= {f"matrix.{name}": why for name in _OF_EM}
        if net.loss != "spread":
            why = f"matrix.loss is {net.loss!r}"
            found |= {f"matrix.{name}": why for name in _OF_SPREAD}
    return found | classifiers.idle("matrix", net, _OF_CAPSULES, _COUNTED)
