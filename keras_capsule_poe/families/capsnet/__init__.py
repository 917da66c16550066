"""Supervised capsule networks: their settings, recipes and stages. Plain data."""

from keras_capsule_poe.families.capsnet.sections import RECIPES, SECTIONS, idle
from keras_capsule_poe.training.family import Family, Stage, lazily

_HERE = "keras_capsule_poe.families.capsnet"

FAMILY = Family(
    name="capsnet",
    text="a classifier of capsules, trained on labels",
    sections=SECTIONS,
    stages=(
        Stage(
            "capsnet",
            lazily(f"{_HERE}.stages:capsnet"),
            section="capsnet",
            writes=("capsnet/model.keras",),
            cost=lazily(f"{_HERE}.build:cost"),
        ),
        Stage(
            "export",
            lazily(f"{_HERE}.stages:export"),
            writes=("model.keras",),
            pictures=("reconstructions.png", "traverse.png"),
        ),
    ),
    recipes=RECIPES,
    labelled=True,
    options={
        name: f"capsnet.{name.replace('-', '_')}"
        for name in (
            "network",
            "classes",
            "coefficients",
            "iterations",
            "augmentation",
            "until-accuracy",
        )  # fmt: skip
    },
    check=lazily(f"{_HERE}.build:check"),
    outline=lazily(f"{_HERE}.build:outline"),
    smallest=lazily(f"{_HERE}.build:smallest"),
    idle=idle,
    load=lazily(f"{_HERE}.stages:load"),
)
