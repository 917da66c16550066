"""First stages of each family that models features: the autoencoder and its features.

Each such family puts `SECTIONS` and `STAGES` before its own.
"""

from keras_capsule_poe.families.features.sections import OPTIONS, SECTIONS
from keras_capsule_poe.training.family import Stage, lazily

_HERE = "keras_capsule_poe.families.features"

# Files of the stage `features` that later stages read.
CACHE = ("features/train.npy", "features/held_out.npy")
STAGES = (
    Stage(
        "autoencoder",
        lazily(f"{_HERE}.stages:autoencoder"),
        section="autoencoder",
        writes=("autoencoder/model.keras",),
        cost=lazily(f"{_HERE}.costs:autoencoder"),
        fits=lazily(f"{_HERE}.build:check_varied"),
    ),
    Stage(
        "features",
        lazily(f"{_HERE}.stages:features"),
        section="primary",
        writes=("features/primary.npz",),
        cache=CACHE,
        cost=lazily(f"{_HERE}.costs:features"),
    ),
)

__all__ = ["CACHE", "OPTIONS", "SECTIONS", "STAGES"]
