"""Validation of numbers and words that are arguments, and arguments as configs."""

import inspect
import math
from numbers import Integral, Real

from keras_capsule_poe.errors import BadUse

# Seeds of calls are those of settings, of the command line and of exported models: 31 bits.
LARGEST_SEED = 2**31 - 1


def whole_number(name, value, least=1, most=math.inf):
    """Return `value` as an int; raise BadUse unless it is an integer from `least` to `most`."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        rule = "a positive integer" if least == 1 else f"an integer of at least {least}"
        # The largest number of all says nothing, except to who gave a larger one.
        is_named = most != LARGEST_SEED or least < 1 or (is_whole and value > most)
        if most < math.inf and is_named:
            rule = f"an integer from {least} to {most}"
        raise BadUse(f"`{name}` must be {rule}. Received: {name}={value!r:.80}")
    return int(value)


def number_given(name, value, least=1, most=LARGEST_SEED):
    """Return a number of a public call, such as `n` or `steps`, as `whole_number`.

    Tensors and seed generators of Keras, whose values a graph does not know, stay as they are.
    """
    package = type(value).__module__.partition(".")[0]
    is_tensor = hasattr(value, "shape") or hasattr(value, "next")
    if is_tensor and package not in ("numpy", "builtins"):
        return value
    return whole_number(name, value, least, most)


def seed_given(seed):
    """Return the seed of a public call, as `number_given`."""
    return number_given("seed", seed, 0, LARGEST_SEED)


def capsule_given(capsule, capsules):
    """Return the index of one of a number of capsules, as `number_given`."""
    try:
        return number_given("capsule", capsule, 0, capsules - 1)
    except BadUse:
        raise BadUse(
            f"`capsule` must be an index of {capsules} capsules, from 0. "
            f"Received: capsule={str(capsule):.80}"
        ) from None


def real_number(name, value, above=-math.inf, besides=""):
    """Return `value` as a float; raise BadUse unless it is finite and above `above`."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and above < value < math.inf):
        rule = "a finite number" if above == -math.inf else f"a number above {above:g}"
        raise BadUse(f"`{name}` must be {rule}{besides}. Received: {name}={value!r}")
    return float(value)


def share(name, value, or_zero=False):
    """Return `value` as a float; raise BadUse unless it is in (0, 1] (or zero, `or_zero`)."""
    number = real_number(name, value)
    if not (0 < number <= 1 or or_zero and number == 0):
        interval = "[0, 1]" if or_zero else "(0, 1]"
        raise BadUse(f"`{name}` must lie in {interval}. Received: {name}={value!r}")
    return float(value)


def not_negative(name, value):
    """Return `value` as a float; raise BadUse unless it is finite and at least zero."""
    if real_number(name, value) < 0:
        raise BadUse(f"`{name}` must be at least 0. Received: {name}={value!r}")
    return float(value)


def below_one(name, value):
    """Return `value` as a float; raise BadUse unless it is in [0, 1)."""
    if not 0 <= real_number(name, value) < 1:
        raise BadUse(f"`{name}` must lie in [0, 1). Received: {name}={value!r}")
    return float(value)


def image_shape_given(name, shape):
    """Return an image shape as a tuple; raise BadUse unless it has three sizes."""
    sizes = tuple(shape or ())
    if len(sizes) != 3:
        raise BadUse(f"`{name}` must be height, width and channels. Received: {name}={shape!r}")
    return sizes


def one_of(name, value, choices):
    """Return `value`; raise BadUse unless it is one of the strings `choices`."""
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise BadUse(f"`{name}` must be {listed}. Received: {name}={value!r}")
    return value


class Configured:
    """Mixin for Keras objects that keep constructor arguments as attributes, or in `options`."""

    def get_config(self):
        """Return the constructor arguments; objects of Keras are configs."""
        import keras

        config = super().get_config()
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, Configured)]
        for kind in kinds:
            for name, argument in inspect.signature(kind.__init__).parameters.items():
                if name in ("self", *config) or argument.kind is argument.VAR_KEYWORD:
                    continue
                # A subclass of a user may keep an argument under another name.
                owner = self if hasattr(self, name) else getattr(self, "options", None)
                if hasattr(owner, name):
                    value = getattr(owner, name)
                    is_object = hasattr(value, "get_config") or callable(value)
                    serialize = keras.saving.serialize_keras_object
                    config[name] = serialize(value) if is_object else value
        return config
