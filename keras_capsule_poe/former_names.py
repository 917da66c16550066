"""Former names of arguments and of their words: one table, by which they still work."""

import functools
import inspect
import warnings

from keras_capsule_poe.errors import BadUse

_WORDS = {"streamed": "fused", "plain": "reference", "compiled": "xla"}


def _word(value):
    return _WORDS.get(value, value) if isinstance(value, str) else value


def counted_with_first(updates):
    """Return the routing iterations of a number of updates: the first iteration updates nothing."""
    return updates + 1


_FORM = {"implementation": ("implementation", _word)}
_ROUTING = {
    "iterations": ("routing_iterations", counted_with_first),
    "temperature": ("agreement_scale", None),
    "normalize": ("softmax_over", None),
    "activation_prior": ("activation_prior_weight", None),
    "scale": ("coefficient_sum", None),
}
# These have always counted the first iteration.
_COUNTED = {"iterations": ("routing_iterations", None)}

# For each class, function or section of settings: former name -> (current name, change of the value
# or None). A class has the rows of its base classes, too.
FORMER = {
    "RoutingOptions": _ROUTING,
    "RoutingLayer": {**_ROUTING, **_FORM},
    "LatentRouter": {name: _ROUTING[name] for name in ("iterations", "scale")},
    "latent_free_energy": {"scale": _ROUTING["scale"]},
    "SelfAttentionRouting": _FORM,
    "EMOptions": _COUNTED,
    "VariationalOptions": _COUNTED,
    "MatrixParents": {**_COUNTED, **_FORM},
    "CapsuleEncoder": {
        "balance": ("load_balancing", None),
        "chain_steps": ("cd_steps", None),
    },
    "HarmoniumModel": {
        "steps": ("cd_steps", None),
        "chains": ("persistent_chains", None),
        "start": ("chains_initializer", None),
    },
    "NeuronExperts": {"balance": ("load_balancing", None)},
    "ImageBoltzmannMachine": {"particles": ("persistent_chains", None)},
    "ProductOfExpertNeurons": {"remembered": ("posterior_states", None)},
}


def current(owner, values, tell=None):
    """Return a dict of values by current name.

    Args:
        owner: str, a key of `FORMER`; or a dict of such rows.
        values: dict of values by current or former name.
        tell: Function of one line of text about each former name. None: silent.

    Raises:
        BadUse: If a value is given by two names.

    >>> current("CapsuleEncoder", {"balance": 0.1, "seed": 3}, print)
    balance is deprecated: use load_balancing=0.1
    {'load_balancing': 0.1, 'seed': 3}
    """
    rows = FORMER.get(owner, {}) if isinstance(owner, str) else owner
    given, found = {}, {}
    for name in values:
        new, _ = rows.get(name, (name, None))
        if given.setdefault(new, name) != name:
            raise BadUse(
                f"{given[new]} and {name} are two names of one argument: give {new} alone. "
                "Received: both"
            )
    for name, value in values.items():
        new, change = rows.get(name, (name, None))
        found[new] = value if change is None else change(value)
        if tell and (new != name or found[new] is not value):
            tell(f"{name} is deprecated: use {new}={found[new]!r}")
    return found


def with_former_names(thing):
    """Decorator of a class or function whose keyword arguments have rows in `FORMER`.

    A former name warns in one line. In a config, which `from_config` reads, it is silent.
    """
    if not isinstance(thing, type):
        return _translated(thing, FORMER[thing.__name__])
    rows = {}
    for base in reversed(thing.__mro__):
        rows |= FORMER.get(base.__name__, {})
    thing.__init__ = _translated(thing.__init__, rows)
    if hasattr(thing, "from_config"):
        read = thing.from_config.__func__

        @functools.wraps(read)
        def from_config(cls, config, *args, **kwargs):
            return read(cls, current(rows, config), *args, **kwargs)

        thing.from_config = classmethod(from_config)
    return thing


def _translated(function, rows):
    """Return a function that takes its keyword arguments by former names, too."""

    @functools.wraps(function)
    def translated(*args, **kwargs):
        def tell(line):
            warnings.warn(line, FutureWarning, stacklevel=4)

        return function(*args, **current(rows, kwargs, tell))

    # Keras reads the argument names of a constructor without following wrappers.
    translated.__signature__ = inspect.signature(function)
    return translated
