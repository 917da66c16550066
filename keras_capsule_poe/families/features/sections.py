"""The settings of the autoencoder and of its features.

Each field is a keyword argument of what is built from its section; see `build.USES`.
"""

from dataclasses import dataclass


@dataclass
class AutoencoderSection:
    """The convolutional autoencoder and its training by backpropagation."""

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
    """Primary capsules: how features are cut, centred and scaled."""

    dim: int = 8
    center: bool = True
    target_length: float = 0.14


@dataclass
class FeaturesSection:
    """Where features are kept; it changes none of their numbers."""

    limit: float | str = 100.0


SECTIONS = {
    "autoencoder": AutoencoderSection,
    "primary": PrimarySection,
    "features": FeaturesSection,
}
# What the command line has as options of their own.
OPTIONS = {"features-limit": "features.limit"}


def idle_steps(config, *sections):
    """The `steps` of those sections whose `epochs` say how long, and that: a dict."""
    return {
        f"{name}.steps": f"{name}.epochs says how long"
        for name in sections
        if config[name].epochs is not None
    }
