"""What arguments may be, in words."""

import math
from numbers import Integral, Real


def whole_number(name, value, least=1):
    """`value` as an int, NumPy's integers included.

    Raises:
        ValueError: If it is no integer, a boolean, or below `least`.

    Examples:

    >>> whole_number("capsules", np.int64(10))
    10
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        rule = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return int(value)


def real_number(name, value, above=-math.inf, besides=""):
    """`value` as a float, NumPy's numbers included.

    Raises:
        ValueError: If it is no finite number, a boolean, or not above `above`; `besides` is what
            the message says may be given instead.

    Examples:

    >>> real_number("temperature", 2, above=0)
    2.0
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and above < value < math.inf):
        rule = "a finite number" if above == -math.inf else f"a number above {above:g}"
        raise ValueError(f"`{name}` must be {rule}{besides}. Received: {name}={value!r}")
    return float(value)


def share(name, value, or_zero=False):
    """`value` as a float.

    Raises:
        ValueError: If it is no number in (0, 1], or in [0, 1] where it may be zero: `or_zero`.

    Examples:

    >>> share("margin", 1)
    1.0
    """
    number = real_number(name, value)
    if not (0 < number <= 1 or or_zero and number == 0):
        interval = "[0, 1]" if or_zero else "(0, 1]"
        raise ValueError(f"`{name}` must lie in {interval}. Received: {name}={value!r}")
    return float(value)


def one_of(name, value, choices):
    """`value`, which must be one of the strings `choices`.

    Raises:
        ValueError: If it is not.

    Examples:

    >>> one_of("normalize", "inputs", ("inputs", "outputs"))
    'inputs'
    """
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be {listed}. Received: {name}={value!r}")
    return value
