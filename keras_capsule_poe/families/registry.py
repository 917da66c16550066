"""Families of models by name: our own, those that other packages bring, and those of a notebook.

A package brings one with an entry point of the group `keras_capsule_poe.families`, whose name is
the model's and whose value the place of its `Family`.
"""

import importlib
from importlib import metadata

from keras_capsule_poe.errors import ConfigError

GROUP = "keras_capsule_poe.families"
DEFAULT = "capsules"
_OURS = {
    "capsules": "keras_capsule_poe.families.capsule_poe:FAMILY",
    "neurons": "keras_capsule_poe.families.neurons:FAMILY",
    "rbm": "keras_capsule_poe.families.rbm:FAMILY",
    "capsnet": "keras_capsule_poe.families.capsnet:FAMILY",
    "matrix-capsules": "keras_capsule_poe.families.matrix_capsules:FAMILY",
}
_registered = {}


def register(family):
    """Makes a `Family` known in this process, under its name.

    Raises:
        ConfigError: If there is another one of its name.

    Examples:

    >>> from keras_capsule_poe.training import Family, Recipe
    >>> register(Family("none", "nothing", {}, (), {"plain": Recipe("")}, load=None))
    >>> get("none").text
    'nothing'
    """
    if _registered.get(family.name, family) is not family or family.name in _places():
        raise ConfigError(f"There is a model {family.name!r} already.")
    _registered[family.name] = family


def names():
    """Names of all families, the default first.

    Examples:

    >>> "capsules" in names()
    True
    """
    return list(dict.fromkeys([*_OURS, *_places(), *_registered]))


def get(name):
    """The `Family` called `name`, imported when it is first asked for.

    Raises:
        ConfigError: If there is none.

    Examples:

    >>> [stage.name for stage in get("capsules").stages]
    ['autoencoder', 'features', 'encoder', 'decoder', 'export']
    """
    if name in _registered:
        return _registered[name]
    places = _places()
    if name not in places:
        raise ConfigError(f"There is no model {name!r}; there are {', '.join(names())}.")
    module, _, attribute = places[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _places():
    found = {point.name: point.value for point in metadata.entry_points(group=GROUP)}
    return {**found, **_OURS}
