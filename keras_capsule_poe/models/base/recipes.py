"""Networks of recipes, for training by Keras alone."""

import random

import keras

from keras_capsule_poe.core.numerics import one_of, whole_number
from keras_capsule_poe.training.config import RunConfig
from keras_capsule_poe.training.precision import check_global_settings


def network_of(family, section, build_model, name, image_shape, classes):
    """Return the capsule network of a family's recipe for images of a shape, built.

    Raises:
        ValueError: If an argument is invalid, or if the recipe is of a baseline without capsules.
        ConfigError: If Keras' global settings do not allow training.
    """
    check_global_settings(policy=False)
    recipes = [
        recipe
        for recipe, found in family.recipes.items()
        if found.settings[section].get("network", "capsules") == "capsules"
    ]
    config = RunConfig(family, one_of("name", name, tuple(recipes)))
    config.set(f"{section}.classes", whole_number("classes", classes))
    # As initializers of Keras do without a seed: `keras.utils.set_random_seed` repeats it.
    config.set("seed", random.randint(1, 10**9))
    shape = tuple(image_shape)
    if len(shape) != 3:
        raise ValueError(
            "`input_shape` must be height, width and channels. "
            f"Received: input_shape={image_shape!r}"
        )
    # As for other Keras models, the global policy decides, not the recipe's precision.
    return build_model(config, shape, dtype=keras.config.dtype_policy().name)
