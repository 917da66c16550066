"""Validation of numbers and words that are arguments, without Keras."""

import math
from numbers import Integral, Real


def whole_number(name, value, least=1):
    """Return `value` as an int; raise ValueError unless it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        rule = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return int(value)


def real_number(name, value, above=-math.inf, besides=""):
    """Return `value` as a float; raise ValueError unless it is finite and above `above`."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and above < value < math.inf):
        rule = "a finite number" if above == -math.inf else f"a number above {above:g}"
        raise ValueError(f"`{name}` must be {rule}{besides}. Received: {name}={value!r}")
    return float(value)


def share(name, value, or_zero=False):
    """Return `value` as a float; raise ValueError unless it is in (0, 1] (or zero, `or_zero`)."""
    number = real_number(name, value)
    if not (0 < number <= 1 or or_zero and number == 0):
        interval = "[0, 1]" if or_zero else "(0, 1]"
        raise ValueError(f"`{name}` must lie in {interval}. Received: {name}={value!r}")
    return float(value)


def below_one(name, value):
    """Return `value` as a float; raise ValueError unless it is in [0, 1)."""
    if not 0 <= real_number(name, value) < 1:
        raise ValueError(f"`{name}` must lie in [0, 1). Received: {name}={value!r}")
    return float(value)


def one_of(name, value, choices):
    """Return `value`; raise ValueError unless it is one of the strings `choices`."""
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be {listed}. Received: {name}={value!r}")
    return value
