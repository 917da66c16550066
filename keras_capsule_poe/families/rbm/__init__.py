"""Restricted Boltzmann machines of images: their settings, recipes and stages. Plain data."""

from keras_capsule_poe.families.rbm.sections import RECIPES, SECTIONS, idle
from keras_capsule_poe.training.family import Family, Stage, lazily

_HERE = "keras_capsule_poe.families.rbm"

FAMILY = Family(
    name="rbm",
    text="a restricted Boltzmann machine, with a likelihood and a Gibbs sampler",
    sections=SECTIONS,
    stages=(
        Stage(
            "rbm",
            lazily(f"{_HERE}.stages:rbm"),
            section="rbm",
            writes=("rbm/model.keras",),
            cost=lazily(f"{_HERE}.build:cost"),
        ),
        Stage(
            "export",
            lazily(f"{_HERE}.stages:export"),
            writes=("model.keras",),
            pictures=("samples.png", "reconstructions.png"),
        ),
    ),
    recipes=RECIPES,
    options={
        name: f"rbm.{name.replace('-', '_')}"
        for name in ("binarize", "neurons", "hidden", "algorithm", "gibbs-steps", "chains")
    },
    check=lazily(f"{_HERE}.build:check"),
    outline=lazily(f"{_HERE}.build:outline"),
    idle=idle,
    load=lazily(f"{_HERE}.stages:load"),
)
