"""Model families by name: built in, from entry points, or registered in this process.

A package adds a family with an entry point in the group `keras_capsule_poe.families`. The entry
point's name is the model's name. Its value is the location `module:attribute` of the `Family`.
"""

import importlib
from importlib import metadata
from typing import Any

from keras_capsule_poe.errors import ConfigError

__all__ = ["get", "names", "register"]

GROUP = "keras_capsule_poe.families"
DEFAULT = "capsules"
_OURS = {
    "capsules": "keras_capsule_poe.models.capsule_poe.config:FAMILY",
    "neurons": "keras_capsule_poe.models.neurons.config:FAMILY",
    "rbm": "keras_capsule_poe.models.boltzmann.config:FAMILY",
    "capsnet": "keras_capsule_poe.models.capsnet.config:FAMILY",
    "matrix-capsules": "keras_capsule_poe.models.matrix_capsules.config:FAMILY",
}
_registered: dict[str, Any] = {}


def register(family: Any) -> None:
    """Register a model family under its name, in this process only.

    Args:
        family: `Family`. Registering the same object again has no effect.

    Raises:
        ConfigError: If another family has this name.

    Example:

    >>> from keras_capsule_poe.training import Family, Recipe
    >>> register(Family("none", "nothing", {}, (), {"plain": Recipe("")}, load=None))
    >>> get("none").text
    'nothing'
    """
    if _registered.get(family.name, family) is not family or family.name in _places():
        raise ConfigError(f"There is a model {family.name!r} already.")
    _registered[family.name] = family


def names() -> list[str]:
    """Return the names of all model families.

    Returns:
        list of str: built-in families with the default first, then entry points, then registered
        families.

    Example:

    >>> "capsules" in names()
    True
    """
    return list(dict.fromkeys([*_OURS, *_places(), *_registered]))


def get(name: str) -> Any:
    """Return a model family by name, imported at first use.

    Args:
        name: str, one of `names()`.

    Returns:
        `Family`.

    Raises:
        ConfigError: If no family has this name.

    Example:

    >>> [stage.name for stage in get("capsules").stages]
    ['autoencoder', 'features', 'encoder', 'decoder', 'export']
    """
    if name in _registered:
        return _registered[name]
    places = _places()
    if name not in places:
        raise ConfigError(f"There is no model {name!r}; there are {', '.join(names())}.")
    if name in _OURS and any(point.name == name for point in metadata.entry_points(group=GROUP)):
        raise ConfigError(f"Another package names its model {name!r} like one of this package.")
    module, _, attribute = places[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _places():
    found = {point.name: point.value for point in metadata.entry_points(group=GROUP)}
    return {**found, **_OURS}
