"""Settings and presets of a product of expert neurons."""

from typing import Annotated, ClassVar, Literal

import pydantic

from keras_capsule_poe.models.base.settings import FeatureSettings, PrimarySettings
from keras_capsule_poe.training.settings import (
    Count,
    Fraction,
    Iterations,
    NotNegative,
    Positive,
    Preset,
    Rate,
    TrainedPart,
)

# The routing settings that other kinds of routing than `per_image` do not use.
_ROUTED = ("agreement_scale", "activation_prior_weight")
_IDLE = {
    "averaged": (*_ROUTED, "routing_iterations", "load_balancing"),
    "latent": (*_ROUTED, "load_balancing"),
    "mixture": (*_ROUTED, "routing_iterations", "cd_steps"),
}


class ExpertsSettings(TrainedPart):
    """Settings of the expert neurons, see `NeuronPoE` and `NeuronExperts`.

    Attributes:
        capsules: Number J of capsules.
        dim: Neurons E of a capsule, at most 20, because all 2^E states of a capsule are summed.
        routing: Coupling coefficients of each image (`per_image`), the same for all images
            (`averaged`), drawn as parents of the parts (`latent`), or one parent capsule of the
            whole image (`mixture`).
        routing_iterations: Iterations, counted as Sabour et al. do: with one the coupling
            coefficients stay uniform.
        agreement_scale: Factor on the agreements in the routing logits.
        activation_prior_weight: Weight of the log-odds of a capsule in the routing logits. It makes
            capsules compete for the whole image.
        coefficient_sum: Sum of the coupling coefficients of an input, or `mean`: their mean is one.
        load_balancing: Step of the routing bias that keeps all capsules in use; 0: off.
        cd_steps: The k of CD-k.
        weight_decay: Share of the weights that a step of rate one takes off.
        initializer: How the maps start: images of clusters (`clusters`) or their principal
            directions (`principal`), random images (`random`) or noise. A mixture starts with
            means and principal axes of the clusters.
        posterior_states: States of each capsule on training images, which the domain `posterior`
            draws from.
        joint_steps: Gibbs steps of the mode `joint`.
    """

    # Momentum of gradient descent.
    momentum: ClassVar[float] = 0.9
    # With fewer steps, draws are far less varied.
    least: ClassVar[float] = 0.4

    capsules: Count = 20
    dim: Annotated[int, pydantic.Field(ge=1, le=20)] = 16
    routing: Literal["per_image", "averaged", "latent", "mixture"] = "per_image"
    routing_iterations: Iterations = 4
    agreement_scale: Positive = 0.1
    activation_prior_weight: NotNegative = 2.0
    coefficient_sum: Positive | Literal["mean"] = 5.0
    load_balancing: Fraction = 0.03
    cd_steps: Iterations = 1
    learning_rate: Rate = 0.003
    weight_decay: NotNegative = 1e-3
    initializer: Literal["clusters", "principal", "random", "noise"] = "clusters"
    posterior_states: Count = 256
    joint_steps: Count = 100


class TopSettings(TrainedPart):
    """Settings of the second layer, a Boltzmann machine of expert neurons for joint samples.

    Attributes:
        capsules: Number of capsules; 0: no second layer.
        dim: Neurons of a capsule.
    """

    momentum: ClassVar[float] = 0.5

    capsules: Annotated[int, pydantic.Field(ge=0)] = 0
    dim: Count = 16
    steps: Count = 2000
    learning_rate: Rate = 0.05


_ONE_MACHINE = {"coefficient_sum": 1.0, "load_balancing": 0.0}
_MIXTURE = {
    "routing": "mixture",
    "coefficient_sum": 1.0,
    "load_balancing": 0.3,
    "learning_rate": 0.02,
    "weight_decay": 0.0,
}


class NeuronSettings(FeatureSettings):
    """Settings of a `ProductOfExpertNeurons`: its parts, presets and stages of training."""

    MODEL = "neurons"
    TEXT = "a product of expert neurons in capsules, over the same features"
    STAGES = {**FeatureSettings.STAGES, "experts": ("experts",), "top": ("top",), "export": ()}
    PRESETS = {
        "held": Preset("routing is found from each image and kept along its chain"),
        "latent": Preset(
            "each part of an image has one parent capsule, a random variable",
            {"experts": {"routing": "latent", **_ONE_MACHINE}},
        ),
        "mixture": Preset(
            "each image has one capsule; likelihood, gradient and samples are exact",
            {"primary": {"target_length": 1.2}, "experts": _MIXTURE},
        ),
        "boltzmann": Preset(
            "no routing: one restricted Boltzmann machine of all neurons",
            {"experts": {"routing": "averaged", **_ONE_MACHINE}},
        ),
    }

    # Primary capsules are visible neurons with unit noise variance.
    primary: PrimarySettings = PrimarySettings(target_length=0.5)
    experts: ExpertsSettings = ExpertsSettings()
    top: TopSettings = TopSettings()

    @property
    def stages(self):
        return {
            stage: parts for stage, parts in self.STAGES.items() if stage != "top" or self.has_top
        }

    @property
    def has_top(self):
        """True if the model has a second layer."""
        return self.top.capsules > 0

    def idle(self):
        found, routing = super().idle(), self.experts.routing
        for name in _IDLE.get(routing, ()):
            found[f"experts.{name}"] = f"experts.routing is {routing!r}"
        if not self.has_top:
            names = [name for name in type(self.top).model_fields if name != "capsules"]
            found |= {f"top.{name}": "top.capsules is 0" for name in names}
        return found
