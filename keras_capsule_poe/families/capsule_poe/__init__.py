"""Products of expert capsules: settings, presets and stages."""

from keras_capsule_poe.families import features
from keras_capsule_poe.families.capsule_poe.recipes import RECIPES
from keras_capsule_poe.families.capsule_poe.sections import SECTIONS, idle
from keras_capsule_poe.training.family import Family, Stage, lazily

_HERE = "keras_capsule_poe.families.capsule_poe"


def _stage(name, **more):
    cost = None if name == "export" else lazily(f"{_HERE}.costs:{name}")
    return Stage(name, lazily(f"{_HERE}.stages:{name}"), cost=cost, **more)


FAMILY = Family(
    name="capsules",
    text="a product of expert capsules, trained without labels by contrastive divergence",
    sections=SECTIONS,
    stages=(
        *features.STAGES,
        _stage(
            "encoder",
            section="encoder",
            reads=features.CACHE,
            writes=("encoder/model.keras", "encoder/codes.npy", "encoder/visited.npz"),
        ),
        _stage("decoder", section="decoder", reads=features.CACHE, writes=("decoder/model.keras",)),
        _stage(
            "export",
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
    load=lazily(f"{_HERE}.load:load"),
)
