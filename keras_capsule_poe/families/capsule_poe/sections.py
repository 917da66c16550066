"""Settings of a product of expert capsules: arguments of the functions in `build.USES`."""

from dataclasses import dataclass

from keras_capsule_poe.families.features import sections as features


@dataclass
class ContrastiveSection:
    """Settings of encoder and decoder: routing and training by contrastive divergence."""

    iterations: int = 3
    temperature: float = 1.0
    normalize: str = "outputs"
    scale: float | str = "mean"
    implementation: str = "streamed"
    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128
    learning_rate: float = 0.02
    momentum: float = 0.9
    final_rate: float = 0.1
    l2: float = 1e-3
    initial_stddev: float = 1e-3
    use_bias: bool = False
    bias_rate: float = 1.0


@dataclass
class EncoderSection(ContrastiveSection):
    """Settings of the capsule encoder with maps W, and of the statistics of its codes."""

    capsules: int = 20
    dim: int = 16
    scale: float | str = 3.0
    learning_rate: float = 0.2
    temperature: float = 0.1
    start: str = "clusters"
    image_length: float = 0.5
    activation_prior: float = 2.0
    chain_steps: int = 1
    balance: float = 0.03
    frames: bool = True
    visited_components: int = 10
    joint_components: int = 3
    joint_rank: int = 64


@dataclass
class DecoderSection(ContrastiveSection):
    """Settings of the capsule decoder with maps U."""

    iterations: int = 0
    learning_rate: float = 0.5
    l2: float = 1e-4
    normalize: str = "inputs"
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
        if config[name].iterations == 0:
            why = f"{name}.iterations is 0"
            found[f"{name}.temperature"] = why
            if name == "encoder":
                found["encoder.activation_prior"] = why
    if encoder.normalize == "inputs":
        why = "encoder.normalize is 'inputs', where the softmax cancels it"
        found |= {"encoder.activation_prior": why, "encoder.balance": why}
    if encoder.start == "noise":
        found["encoder.image_length"] = "encoder.start is 'noise'"
    else:
        found["encoder.initial_stddev"] = f"encoder.start is {encoder.start!r}"
    return found
