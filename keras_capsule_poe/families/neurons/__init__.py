"""Products of expert neurons: settings, presets and stages."""

from keras_capsule_poe.families import features
from keras_capsule_poe.families.neurons.recipes import RECIPES
from keras_capsule_poe.families.neurons.sections import SECTIONS, idle
from keras_capsule_poe.families.neurons.top_section import has_top
from keras_capsule_poe.training.family import Family, Stage, lazily

_HERE = "keras_capsule_poe.families.neurons"

FAMILY = Family(
    name="neurons",
    text="a product of expert neurons in capsules, over the same features",
    sections=SECTIONS,
    stages=(
        *features.STAGES,
        Stage(
            "experts",
            lazily(f"{_HERE}.stages:experts"),
            section="experts",
            reads=features.CACHE,
            writes=("experts/model.keras", "experts/visited.npz"),
            cost=lazily(f"{_HERE}.costs:experts"),
        ),
        Stage(
            "top",
            lazily(f"{_HERE}.top:top"),
            section="top",
            reads=features.CACHE,
            writes=("top/model.keras",),
            cost=lazily(f"{_HERE}.top:cost"),
            when=has_top,
        ),
        Stage(
            "export",
            lazily(f"{_HERE}.stages:export"),
            writes=("model.keras",),
            pictures=("samples-*.png", "reconstructions.png"),
            alone=True,
        ),
    ),
    recipes=RECIPES,
    options=features.OPTIONS,
    check=lazily(f"{_HERE}.build:check"),
    outline=lazily(f"{_HERE}.costs:outline"),
    smallest=lazily("keras_capsule_poe.families.features.build:smallest"),
    idle=idle,
    load=lazily(f"{_HERE}.build:load"),
)
