"""Restricted Boltzmann machines of images: settings, presets and stages."""

from dataclasses import replace

from keras_capsule_poe.families import features
from keras_capsule_poe.families.rbm.sections import RECIPES, SECTIONS, idle
from keras_capsule_poe.training.family import Family, Stage, lazily

_HERE = "keras_capsule_poe.families.rbm"


def _of_features(config):
    return config["rbm"].visible == "features"


FAMILY = Family(
    name="rbm",
    text="a restricted Boltzmann machine, with a likelihood and a Gibbs sampler",
    sections=SECTIONS,
    stages=(
        *(replace(stage, when=_of_features) for stage in features.STAGES),
        Stage(
            "rbm",
            lazily(f"{_HERE}.stages:rbm"),
            section="rbm",
            reads=features.CACHE,
            writes=("rbm/model.keras",),
            cost=lazily(f"{_HERE}.build:cost"),
        ),
        Stage(
            "export",
            lazily(f"{_HERE}.stages:export"),
            writes=("model.keras",),
            pictures=("samples.png", "reconstructions.png"),
            alone=True,
        ),
    ),
    recipes=RECIPES,
    options=features.OPTIONS
    | {
        name: f"rbm.{name.replace('-', '_')}"
        for name in (
            "visible",
            "binarize",
            "neurons",
            "hidden",
            "algorithm",
            "gibbs-steps",
            "chains",
        )
    },
    check=lazily(f"{_HERE}.build:check"),
    outline=lazily(f"{_HERE}.build:outline"),
    smallest=lazily(f"{_HERE}.build:smallest"),
    idle=idle,
    load=lazily(f"{_HERE}.stages:load"),
)
