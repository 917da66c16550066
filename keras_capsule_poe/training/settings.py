"""Conversion of settings from files and the command line."""

import math
import types
import typing

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from keras_capsule_poe.errors import ConfigError


def read_toml(path):
    """Return a TOML file as nested dicts; raise ConfigError if it is not readable."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    # ValueError: not TOML, not UTF-8, or a number with thousands of digits.
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error}") from error


def convert(name, value, kind):
    """Convert a value, maybe text, to the type of its setting, or raise ConfigError."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    optional = type(None) in kinds
    if optional and value in (None, "none"):
        return None
    wanted = float | str if {float, str} <= set(kinds) else kinds[0]
    try:
        return _KINDS[wanted][1](value)
    except (KeyError, TypeError, ValueError, OverflowError):
        words = _KINDS[wanted][0] + (", or none" if optional else "")
        raise ConfigError(f"{name} must be {words}. Received: {value!r}") from None


def _whole(value):
    if isinstance(value, bool) or int(value) != float(value):
        raise ValueError
    return int(value)


def _number(value):
    if isinstance(value, bool) or not math.isfinite(float(value)):
        raise ValueError
    return float(value)


def _text(value):
    if not isinstance(value, str):
        raise ValueError
    return value


def _truth(value):
    return {True: True, False: False, "true": True, "false": False}[value]


def _pair(value):
    if isinstance(value, str):
        value = value.lower().split("x")
    if isinstance(value, int):
        value = (value,)
    sizes = tuple(_whole(size) for size in value)
    height, width = sizes * 2 if len(sizes) == 1 else sizes
    return height, width


def _number_or_text(value):
    try:
        return _number(value)
    except ValueError:
        return _text(value)


# For each type, its description in messages and its conversion.
_KINDS = {
    bool: ("true or false", _truth),
    int: ("a whole number", _whole),
    float: ("a number", _number),
    str: ("text", _text),
    tuple[int, int]: ("a whole number of pixels, or height and width as HxW", _pair),
    # Settings that take a number or the name of a rule for it.
    float | str: ("a number or a word", _number_or_text),
}
