"""Training engine: settings, stages and checkpoints. Importing it is quick."""

from keras_capsule_poe.training.folder import RunFolder
from keras_capsule_poe.training.images import changed, load_data
from keras_capsule_poe.training.progress import Reporter
from keras_capsule_poe.training.run import Run, train
from keras_capsule_poe.training.settings import Part, Preset, Schedule, Settings, TrainedPart

__all__ = [
    "Part",
    "Preset",
    "Reporter",
    "Run",
    "RunFolder",
    "Schedule",
    "Settings",
    "TrainedPart",
    "changed",
    "load_data",
    "train",
]
