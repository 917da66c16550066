"""Training runs: configuration, stages, checkpoints. Importing this is quick."""

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.families.capsule_poe.recipes import RECIPES
from keras_capsule_poe.training.config import RunConfig
from keras_capsule_poe.training.reporter import Reporter
from keras_capsule_poe.training.run import STAGES, train

__all__ = ["RECIPES", "STAGES", "ConfigError", "Reporter", "RunConfig", "train"]
