"""Settings as they come from files and the command line: reading them, and their kinds."""

import math

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from keras_capsule_poe.errors import ConfigError


def read_toml(path):
    """The settings in a TOML file, as nested dicts.

    Raises:
        ConfigError: If the file cannot be read or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error}") from error


def converted(name, value, kind):
    """A setting's value as of its kind, the annotation of its field.

    Raises:
        ConfigError: If it cannot be.
    """
    optional = "None" in str(kind)
    if optional and value in (None, "none"):
        return None
    wanted = str(kind).replace(" | None", "").replace("<class '", "").replace("'>", "")
    try:
        if wanted == "bool":
            return {True: True, False: False, "true": True, "false": False}[value]
        if wanted == "int" and not isinstance(value, bool) and int(value) == float(value):
            return int(value)
        if wanted == "float" and not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
        if wanted == "str" and isinstance(value, str):
            return value
        if wanted.startswith("tuple"):
            height, width = value
            return (int(height), int(width))
    except (KeyError, TypeError, ValueError):
        pass
    raise ConfigError(f"{name} must be of kind {kind}. Received: {value!r}")
