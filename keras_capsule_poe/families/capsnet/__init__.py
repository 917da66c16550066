"""Supervised capsule networks: settings, presets and stages."""

from keras_capsule_poe.families.capsnet.sections import RECIPES, SECTIONS, idle
from keras_capsule_poe.families.classifiers.family import classifier_family

FAMILY = classifier_family(
    name="capsnet",
    text="a classifier of capsules, trained on labels",
    section="capsnet",
    module="keras_capsule_poe.families.capsnet",
    options=(
        "network",
        "classes",
        "coefficients",
        "iterations",
        "optimizer",
        "augmentation",
        "until-accuracy",
    ),
    sections=SECTIONS,
    recipes=RECIPES,
    idle=idle,
)
