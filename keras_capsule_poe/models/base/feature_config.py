"""First stages of each family that models features: the autoencoder and its features.

Each such family puts `SECTIONS` and `STAGES` before its own.
"""

from dataclasses import dataclass

from keras_capsule_poe.training.family import Stage, lazily

# Files of the stage `features` that later stages read.
CACHE = ("features/train.npy", "features/held_out.npy")
STAGES = (
    Stage(
        "autoencoder",
        lazily("keras_capsule_poe.models.base.feature_training:autoencoder"),
        section="autoencoder",
        writes=("autoencoder/model.keras",),
    ),
    Stage(
        "features",
        lazily("keras_capsule_poe.models.base.feature_training:features"),
        section="primary",
        writes=("features/primary.npz",),
        cache=CACHE,
    ),
)


@dataclass
class AutoencoderSection:
    """Settings of the convolutional autoencoder and its training."""

    ALIASES = {"final_rate": ("min_learning_rate_fraction", None)}

    filters: int = 128
    dropout: float = 0.1
    negative_slope: float = 0.2
    epochs: int | None = None
    steps: int = 900
    batch_size: int = 32
    learning_rate: float = 2e-3
    min_learning_rate_fraction: float = 0.02
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


def counted_with_first(updates):
    """Return the routing iterations, of which the first has uniform coefficients and no update."""
    return updates + 1
