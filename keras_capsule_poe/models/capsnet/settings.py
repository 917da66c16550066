"""Settings and presets of a supervised capsule network."""

from typing import Literal

from keras_capsule_poe.models.base.settings import (
    ClassifierPart,
    ClassifierSettings,
    norb_of,
    options_of,
    presets_of,
)
from keras_capsule_poe.training.settings import Count, Iterations, Positive

# Minimum height and width of the images of each body.
SMALLEST = {"capsules": 17, "efficient": 11, "places": 14}


class CapsNetPart(ClassifierPart):
    """Settings of a capsule network: layers, loss and training.

    With `published_code` it has squared lengths, biases, initial weights and a loss as the code of
    Sabour et al. has.

    Attributes:
        body: Layers from images to input capsules: `capsules` of Sabour et al., `efficient` of
            Efficient-CapsNet, or `places`, whose maps all places share.
        filters: Filters of the convolution of the body `capsules`.
        types: Types of its primary capsules.
        primary_dim: Dimensions of its primary capsules.
        dim: Dimensions of a class capsule.
        coefficients: Coupling coefficients, `routed` or `uniform`.
        routing_iterations: Iterations, counted as Sabour et al. do: with one the coupling
            coefficients stay uniform.
        agreement: Agreement of a vote with a class capsule, see `functions.RoutingOptions`.
        logits: Routing logits, `accumulated` over the iterations or `replaced` in each.
        leaky: Let an input capsule belong to no class.
        absent_weight: Weight of the absent classes in the margin loss.
    """

    decoder: Literal["dense", "conv", "none"] = "dense"
    learning_rate_schedule: Literal["cosine", "exponential"] = "exponential"
    body: Literal["capsules", "efficient", "places"] = "capsules"
    filters: Count = 256
    types: Count = 32
    primary_dim: Count = 8
    dim: Count = 16
    coefficients: Literal["routed", "uniform"] = "routed"
    routing_iterations: Iterations = 3
    agreement: Literal["dot", "cosine", "projection"] = "dot"
    logits: Literal["accumulated", "replaced"] = "accumulated"
    leaky: bool = False
    absent_weight: Positive = 0.5

    @property
    def initializer(self):
        is_he = self.body == "efficient" and not self.published_code
        return "he" if is_he else super().initializer


# The size of the paper's network for SVHN, with a decoder.
_SMALL = {
    "filters": 64,
    "types": 16,
    "primary_dim": 6,
    "dim": 8,
    "steps": 4700,
    "learning_rate_schedule": "cosine",
}
_EFFICIENT = {
    "body": "efficient",
    "augmentation": "efficient",
    "steps": 37_500,
    "batch_size": 16,
    "learning_rate": 5e-4,
    "decay_rate": 0.97,
    "decay_steps": None,
}
_SHARED = {
    "body": "places",
    "agreement": "projection",
    "logits": "replaced",
    "decoder": "none",
    "absent_weight": 0.25,
    "augmentation": "none",
    "steps": 4700,
    "decay_rate": 1.0,
}


class CapsNetSettings(ClassifierSettings):
    """Settings of a `CapsNet`: its part, presets and stages of training."""

    MODEL = "capsnet"
    TEXT = "a classifier of capsules, trained on labels"
    STAGES = {"capsnet": ("capsnet",), "export": ()}
    PRESETS = presets_of(
        "capsnet",
        {
            "paper": ("CapsNet of Sabour et al., as in the text of the paper", {}),
            "official": (
                "CapsNet as in the published code: another loss, and a bias",
                {"published_code": True},
            ),
            "small": ("CapsNet with a quarter of the parameters, trains in minutes", _SMALL),
            "efficient": ("Efficient-CapsNet, routing by self-attention", _EFFICIENT),
            "shared": ("maps that all places share, k-means routing, no decoder", _SHARED),
            "baseline": (
                "the convolutional network that the paper compares with",
                {"network": "cnn", "units": 328},
            ),
        },
    )
    OPTIONS = options_of(
        "capsnet",
        "network",
        "classes",
        "coefficients",
        "routing-iterations",
        "optimizer",
        "augmentation",
        "until-accuracy",
    )
    SUITS = norb_of("capsnet")
    OF_CAPSULES = (
        "coefficients",
        "routing_iterations",
        "agreement",
        "logits",
        "leaky",
        "absent_weight",
    )
    COUNTED = ("types", "primary_dim", "dim")

    capsnet: CapsNetPart = CapsNetPart()

    def idle(self):
        net, found = self.capsnet, {}
        if net.body != "capsules":
            found |= self.leave_out("body", "filters", "types", "primary_dim")
        if net.body == "efficient":
            found |= self.leave_out("body", "routing_iterations", "agreement", "logits", "leaky")
        if net.coefficients == "uniform":
            found |= self.leave_out("coefficients", "routing_iterations", "agreement", "logits")
        return found | super().idle()

    @property
    def normalizes_batches(self):
        return self.capsnet.body == "efficient"

    def smallest(self):
        return max(SMALLEST[self.capsnet.body], super().smallest())
