"""Settings and presets of a network of matrix capsules."""

from typing import ClassVar, Literal

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.models.base.settings import (
    ClassifierPart,
    ClassifierSettings,
    norb_of,
    options_of,
    presets_of,
)
from keras_capsule_poe.training.settings import Count, Iterations, Positive, Rate

# Learning rates of the networks, where none is given.
RATES = {"em": 0.02, "variational": 0.003, "cnn": 1e-3}
# Minimum image size for a stride of two and two layers of 3x3 windows, the first with stride 2.
SMALLEST = 13


class MatrixPart(ClassifierPart):
    """Settings of a network of matrix capsules: layers, routing, loss and training.

    With `published_code` the parents at one place compete for a child, means are damped, costs are
    sums over the children, and initial weights, the loss and its margin are as in the code of
    Hinton et al.

    Attributes:
        learning_rate: Learning rate at the start. None: 0.02 for EM, 0.003 for variational routing
            and 0.001 for the baseline.
        filters: Filters of the convolution, A of Hinton et al.
        primary_types: Types of primary capsules, B.
        types: Types of capsules of the first layer, C.
        last_types: Types of capsules of the second layer, D.
        size: Height and width of a pose matrix.
        coordinates: Add the places of capsules to their votes for the classes.
        routing: Routing algorithm, `em` or `variational`.
        routing_iterations: M steps, one more than there are E steps.
        inner_routing_iterations: M steps below the class capsules. None: `routing_iterations`.
        inverse_temperature: Inverse temperature of the activations, lambda.
        class_temperature: Factor on the inverse temperature for the class capsules.
        variance_floor: Number that is added to the variances.
        assignment_temperature: Temperature of the assignment probabilities.
        loss: Loss of the activations of the classes.
    """

    least: ClassVar[float] = 0.03

    augmentation: Literal["none", "shift", "efficient", "flip", "cifar", "norb"] = "none"
    steps: Count = 4600
    batch_size: Count = 64
    learning_rate: Rate | None = None
    decay_steps: Count | None = 20_000
    filters: Count = 64
    primary_types: Count = 8
    types: Count = 16
    last_types: Count = 16
    size: Count = 4
    coordinates: bool = True
    routing: Literal["em", "variational"] = "em"
    routing_iterations: Iterations = 3
    inner_routing_iterations: Iterations | None = None
    inverse_temperature: Positive = 1.0
    class_temperature: Positive = 1.0
    variance_floor: Positive = 0.1
    assignment_temperature: Positive = 4.0
    loss: Literal["spread", "margin", "cross-entropy"] = "spread"

    @property
    def initializer(self):
        return "official" if self.published_code else "he"

    @property
    def first_rate(self):
        kind = "cnn" if self.network == "cnn" else self.routing
        return RATES[kind] if self.learning_rate is None else self.learning_rate


_PAPER = {"filters": 32, "primary_types": 32, "types": 32, "last_types": 32}
# Settings of the published code that differ from the paper. Its logits are twice ours, since its
# costs use variances and ours use standard deviations.
_OFFICIAL = {
    **_PAPER,
    "published_code": True,
    "variance_floor": 5e-4,
    "assignment_temperature": 1.0,
    "inverse_temperature": 0.02,
    "class_temperature": 0.25,
    "learning_rate": 3e-3,
    "learning_rate_schedule": "exponential",
}
_OF_EM = ("inverse_temperature", "class_temperature", "variance_floor", "assignment_temperature")


class MatrixSettings(ClassifierSettings):
    """Settings of a `MatrixCapsNet`: its part, presets and stages of training."""

    MODEL = "matrix-capsules"
    TEXT = "a classifier of matrix capsules, routed by EM, trained on labels"
    STAGES = {"matrix": ("matrix",), "export": ()}
    PRESETS = presets_of(
        "matrix",
        {
            "small": (
                "small network of Hinton et al., 68,618 parameters for stereo images",
                # With a third iteration, parents with so few children learn more slowly.
                {"routing_iterations": 2},
            ),
            "paper": ("large network of Hinton et al., 316,650 parameters", _PAPER),
            "official": ("large network as in the published code, not trained here", _OFFICIAL),
        },
    )
    OPTIONS = options_of(
        "matrix",
        "network",
        "classes",
        "routing",
        "routing-iterations",
        "loss",
        "optimizer",
        "augmentation",
        "until-accuracy",
    )
    SUITS = norb_of("matrix")
    OF_CAPSULES = ("routing", "routing_iterations", "inner_routing_iterations", "loss", *_OF_EM)
    COUNTED = ("primary_types", "types", "last_types", "size", "coordinates")

    matrix: MatrixPart = MatrixPart()

    def idle(self):
        found = {}
        if self.matrix.routing != "em":
            found |= self.leave_out("routing", *_OF_EM)
        return found | super().idle()

    @property
    def normalizes_batches(self):
        return self.matrix.network == "capsules" and self.matrix.routing == "variational"

    def smallest(self):
        return max(SMALLEST, super().smallest())

    def check(self, image_shape=None):
        super().check(image_shape)
        if self.matrix.coordinates and self.matrix.size < 2:
            raise ConfigError(
                "matrix.coordinates need poses of at least 2x2. "
                f"Received: matrix.coordinates=True, matrix.size={self.matrix.size}"
            )
