"""Settings of the autoencoder and its features: arguments of the functions in `build.USES`."""

from dataclasses import dataclass


@dataclass
class AutoencoderSection:
    """Settings of the convolutional autoencoder and its training."""

    filters: int = 128
    dropout: float = 0.1
    negative_slope: float = 0.2
    epochs: int | None = None
    steps: int = 900
    batch_size: int = 32
    learning_rate: float = 2e-3
    final_rate: float = 0.02
    weight_decay: float = 2.0
    precision: str = "auto"


@dataclass
class PrimarySection:
    """Settings of the primary capsules: grouping, centering and scaling of features."""

    dim: int = 8
    center: bool = True
    target_length: float = 0.14


@dataclass
class FeaturesSection:
    """Settings of the feature cache; they do not change any feature."""

    limit: float | str = 100.0


SECTIONS = {
    "autoencoder": AutoencoderSection,
    "primary": PrimarySection,
    "features": FeaturesSection,
}
# Settings that are also command-line options.
OPTIONS = {"features-limit": "features.limit"}


def idle_steps(config, *sections):
    """Return the `steps` settings that `epochs` overrides, each with the reason (a dict)."""
    return {
        f"{name}.steps": f"{name}.epochs says how long"
        for name in sections
        if config[name].epochs is not None
    }
