"""Settings of a product of expert neurons: arguments of the functions in `build.USES`."""

from dataclasses import dataclass

from keras_capsule_poe.families.features import sections as features
from keras_capsule_poe.families.neurons.top_section import TopSection, idle_top


@dataclass
class NeuronFeaturesSection(features.PrimarySection):
    """Settings of primary capsules as visible neurons with unit noise variance."""

    target_length: float = 0.5


@dataclass
class ExpertsSection:
    """Settings of the expert neurons: routing and training by contrastive divergence."""

    capsules: int = 20
    dim: int = 16
    routing: str = "held"
    centering: bool = False
    learn_variance: bool = False
    iterations: int = 3
    temperature: float = 0.1
    normalize: str = "outputs"
    activation_prior: float = 2.0
    scale: float | str = 5.0
    balance: float = 0.03
    implementation: str = "streamed"
    algorithm: str = "cd"
    passes: int = 1
    chains: int = 128
    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128
    learning_rate: float = 0.003
    momentum: float = 0.9
    final_rate: float = 0.1
    weight_decay: float = 1e-3
    offset_rate: float = 0.01
    start: str = "clusters"
    image_length: float = 0.3
    hidden_start: float = -4.0
    initial_stddev: float = 0.01
    remembered: int = 256
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
        names = ("iterations", "temperature", "activation_prior", "balance")
        found |= {f"experts.{name}": why for name in names}
    elif experts.routing == "latent":
        why = "experts.routing is 'latent', whose agreement is its energy"
        names = ("temperature", "activation_prior", "balance", "offset_rate")
        found |= {f"experts.{name}": why for name in names}
    elif experts.routing == "mixture":
        why = "experts.routing is 'mixture', whose gradient is exact"
        names = (
            "iterations", "temperature", "normalize", "activation_prior", "centering",
            "learn_variance", "implementation", "passes", "chains", "offset_rate",
        )  # fmt: skip
        found |= {f"experts.{name}": why for name in names}
        if experts.start == "clusters":
            why = "capsules start as the means and principal axes of clusters"
            found |= {"experts.image_length": why, "experts.hidden_start": why}
    if experts.start == "noise":
        found["experts.image_length"] = "experts.start is 'noise'"
    else:
        found["experts.initial_stddev"] = f"experts.start is {experts.start!r}"
    if not experts.centering:
        found["experts.offset_rate"] = "experts.centering is off"
    if experts.algorithm == "cd":
        found["experts.chains"] = "experts.algorithm is 'cd'"
    return found
