"""Networks of matrix capsules: settings, presets and stages."""

from keras_capsule_poe.families.classifiers.family import classifier_family
from keras_capsule_poe.families.matrix_capsules.sections import RECIPES, SECTIONS, idle

FAMILY = classifier_family(
    name="matrix-capsules",
    text="a classifier of matrix capsules, routed by EM, trained on labels",
    section="matrix",
    module="keras_capsule_poe.families.matrix_capsules",
    options=(
        "network",
        "classes",
        "routing",
        "iterations",
        "loss",
        "optimizer",
        "augmentation",
        "until-accuracy",
    ),
    sections=SECTIONS,
    recipes=RECIPES,
    idle=idle,
)
