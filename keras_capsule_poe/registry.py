"""Models by name: those of this package and of others, by entry points, and registered ones.

A package adds a model with an entry point in the group `keras_capsule_poe.models`. The entry
point's name is the model's name, its value the location `module:Class`. The class has its
`Settings` in the attribute `SETTINGS`. An entry point of the same name in the group
`keras_capsule_poe.settings` locates these settings where they need no TensorFlow, so that
the help of `capspoe train` is quick.
"""

import functools
from importlib import metadata
from typing import Any

from keras_capsule_poe.errors import ConfigError, meant

__all__ = ["create", "model_class", "names", "register", "settings", "untrained"]

DEFAULT = "capsules"
MODELS, SETTINGS = "keras_capsule_poe.models", "keras_capsule_poe.settings"
_registered: dict[str, Any] = {}


# A command asks for them several times, and all packages that are installed are read.
@functools.cache
def _points(group):
    """Return the entry points of a group by name; those of this package come first."""
    found = metadata.entry_points(group=group)
    ours = [point for point in found if point.value.startswith("keras_capsule_poe.")]
    if not ours:
        raise ConfigError(
            "The models of this package are not registered: it was installed before they were, or "
            "not at all. Run `pip install` again in its folder."
        )
    others = [point for point in found if point not in ours]
    taken = {point.name for point in ours} & {point.name for point in others}
    if taken:
        raise ConfigError(
            f"Another package names its model {min(taken)!r} like one of this package."
        )
    every = sorted((*ours, *others), key=lambda point: point.name != DEFAULT)
    return {point.name: point for point in every}


def names() -> list[str]:
    """Return the names of all models: the default first, then entry points, then registered ones.

    Example:

    >>> names()[0]
    'capsules'
    """
    return list(dict.fromkeys([*_points(MODELS), *_registered]))


def register(model: Any) -> None:
    """Register a model class under the name in its settings, in this process only.

    Args:
        model: Class with the attribute `SETTINGS`. The same class again has no effect.

    Raises:
        ConfigError: If another model has this name.

    Example:

    >>> register(model_class("rbm"))
    Traceback (most recent call last):
    keras_capsule_poe.errors.ConfigError: There is a model 'rbm' already.
    """
    name = model.SETTINGS.MODEL
    if _registered.get(name, model) is not model or name in _points(MODELS):
        raise ConfigError(f"There is a model {name!r} already.")
    _registered[name] = model


def model_class(name: str) -> Any:
    """Return the class of a model by name, imported at first use.

    Raises:
        ConfigError: If no model has this name.

    Example:

    >>> model_class("rbm").__name__
    'ImageBoltzmannMachine'
    """
    if name in _registered:
        return _registered[name]
    if name not in _points(MODELS):
        listed = ", ".join(names())
        raise ConfigError(f"There is no model {name!r}.{meant(name, names())} There are {listed}.")
    return _points(MODELS)[name].load()


def settings_class(name):
    """Return the class of a model's `Settings`, if possible without importing TensorFlow."""
    points = {} if name in _registered else _points(SETTINGS)
    return points[name].load() if name in points else model_class(name).SETTINGS


def settings(name: str, preset: str | None = None, /, **values: Any) -> Any:
    """Return the `Settings` of a model.

    Args:
        name: Name of the model.
        preset: Name of a preset of the model; None: the first.
        **values: Settings by name, see `Settings.set`.

    Raises:
        ConfigError: If there is no such model, preset or setting, or a value is not valid.

    Example:

    >>> settings("capsules", seed=3).encoder.capsules
    20
    """
    return settings_class(name)(preset, **values)


def create(name: str, preset: str | None = None, /, **values: Any) -> Any:
    """Return a model that is not trained yet, with settings as `settings` takes them.

    Example:

    >>> create("rbm", "small", seed=3).settings.rbm.hidden
    16
    """
    return untrained(settings(name, preset, **values))


def untrained(settings: Any) -> Any:
    """Return a model with `Settings` that is not trained yet.

    Example:

    >>> untrained(settings("capsules")).is_fitted
    False
    """
    return model_class(settings.MODEL).of(settings)
