"""Networks of matrix capsules: their settings, recipes and stages. Plain data."""

from keras_capsule_poe.families.matrix_capsules.sections import RECIPES, SECTIONS, idle
from keras_capsule_poe.training.family import Family, Stage, lazily

_HERE = "keras_capsule_poe.families.matrix_capsules"

FAMILY = Family(
    name="matrix-capsules",
    text="a classifier of matrix capsules, routed by EM, trained on labels",
    sections=SECTIONS,
    stages=(
        Stage(
            "matrix",
            lazily(f"{_HERE}.stages:matrix"),
            section="matrix",
            writes=("matrix/model.keras",),
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
        name: f"matrix.{name.replace('-', '_')}"
        for name in (
            "network",
            "classes",
            "routing",
            "iterations",
            "loss",
            "augmentation",
            "until-accuracy",
        )
    },
    check=lazily(f"{_HERE}.build:check"),
    outline=lazily(f"{_HERE}.build:outline"),
    smallest=lazily(f"{_HERE}.build:smallest"),
    idle=idle,
    load=lazily(f"{_HERE}.stages:load"),
)
