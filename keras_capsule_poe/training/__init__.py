"""Training engine: configuration, stages and checkpoints. Importing it is quick."""

from keras_capsule_poe.training.config import RunConfig
from keras_capsule_poe.training.family import Family, Recipe, Schedule, Stage, lazily
from keras_capsule_poe.training.folder import RunFolder
from keras_capsule_poe.training.images import changed, load_data
from keras_capsule_poe.training.progress import Reporter
from keras_capsule_poe.training.run import Run, train

__all__ = [
    "Family",
    "Recipe",
    "Reporter",
    "Run",
    "RunConfig",
    "RunFolder",
    "Schedule",
    "Stage",
    "changed",
    "lazily",
    "load_data",
    "train",
]
