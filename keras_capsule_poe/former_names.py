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
    return int(updates) + 1 if str(updates).isdecimal() else updates


_ROUTINGS = {"held": "per_image", "fixed": "averaged"}


def _routing(value):
    return _ROUTINGS.get(value, value) if isinstance(value, str) else value


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
    "NeuronPoE": {"routing": ("routing", _routing)},
    "HarmoniumModel": {
        "steps": ("cd_steps", None),
        "chains": ("persistent_chains", None),
        "start": ("chains_initializer", None),
    },
    "NeuronExperts": {"balance": ("load_balancing", None)},
    "ImageBoltzmannMachine": {"particles": ("persistent_chains", None)},
    "ProductOfExpertNeurons": {
        "remembered": ("posterior_states", None),
        "recipe": ("preset", None),
    },
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


def without_removed(config, *names):
    """Return a config without arguments that are gone: `names` and `amplitude`.

    Raises:
        BadUse: If the codes have an amplitude.
    """
    if config.get("amplitude"):
        raise BadUse(
            "`amplitude` must be False: codes have none any more. Received: amplitude=True. Load "
            "the model with the version that wrote it; its SavedModel runs in TensorFlow alone."
        )
    return {name: config[name] for name in config if name not in ("amplitude", *names)}


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


_TRAINED = {"final_rate": "min_learning_rate_fraction"}
_ROUTED = {
    "temperature": "agreement_scale",
    "normalize": "softmax_over",
    "scale": "coefficient_sum",
    "activation_prior": "activation_prior_weight",
}
_CHAIN = {"passes": "cd_steps", "gibbs_steps": "cd_steps", "chains": "persistent_chains"}
_CONTRASTIVE = {"chain_steps": "cd_steps", "balance": "load_balancing", "start": "initializer"}
_INITIALIZER = ("published_code", lambda kind: kind == "official")
_CLASSIFIER = {
    "initial": _INITIALIZER,
    "initializer": _INITIALIZER,
    "fall": "learning_rate_schedule",
    "decay": "decay_rate",
    "least_rate": "min_learning_rate",
    "iterations": "routing_iterations",
}
# Former name of a setting -> current name, or a pair with the change of the value. A name without a
# part belongs to the same part.
SETTINGS = {
    "recipe": "preset",
    "autoencoder": _TRAINED,
    "encoder": {
        **_TRAINED,
        **_ROUTED,
        **_CONTRASTIVE,
        "iterations": ("routing_iterations", counted_with_first),
        "l2": "weight_decay",
        "frames": "whitening",
    },
    "decoder": {
        **_TRAINED,
        "temperature": "agreement_scale",
        "normalize": "softmax_over",
        "scale": "coefficient_sum",
        "iterations": ("routing_iterations", counted_with_first),
        "l2": "weight_decay",
    },
    "experts": {
        **_TRAINED,
        **_ROUTED,
        **_CHAIN,
        **_CONTRASTIVE,
        "iterations": ("routing_iterations", counted_with_first),
        "remembered": "posterior_states",
        "hidden_start": "initial_hidden_bias",
        "routing": ("routing", _routing),
    },
    "top": {**_TRAINED, **_CHAIN},
    "rbm": {**_TRAINED, **_CHAIN, "chains_start": "chains_initializer"},
    "capsnet": {**_CLASSIFIER, "loss": "loss_reduction"},
    "matrix": {
        **_CLASSIFIER,
        "inner_iterations": "inner_routing_iterations",
        "spread_scaling": "loss_reduction",
        "rise": "margin_schedule",
    },
}
# Settings that say how to compute, of any part.
_COMPUTE = {"precision": None, "microbatch": None, "implementation": _word, "limit": None}


def _published(paper, code):
    """Return the values of a setting that follows `published_code` now: of the paper, and True."""
    return {False: paper, True: code}


# Settings that are gone, with the values that the code now has. A run with another value cannot go
# on.
REMOVED = {
    "capsnet.divide": _published(False, True),
    "capsnet.use_bias": _published(False, True),
    "capsnet.loss_reduction": _published("sum", "official"),
    # These follow other settings.
    "capsnet.initial_stddev": (0.1, (2 / 1280) ** 0.5),
    "capsnet.min_learning_rate": (1e-6, 5e-5),
    "capsnet.max_pooling": (True, False),
    "capsnet.global_pooling": (False, True),
    "capsnet.padding": ("valid",),
    "capsnet.dropout": (0.5,),
    "capsnet.shift": (2,),
    "matrix.loss_reduction": _published("sum", "official"),
    "matrix.margin_schedule": _published("linear", "official"),
    "matrix.margin_steps": _published(None, 700_000),
    "matrix.last_margin": _published(0.9, 0.99),
    "matrix.compete": _published("all", "places"),
    "matrix.damping": _published(0.0, 0.1),
    "matrix.normalize_mass": _published(True, False),
    "matrix.activation_scale": _published(10.0, -2500.0),
    "matrix.schedule": ("official",),
    "matrix.first_margin": (0.2,),
    "matrix.min_learning_rate": (1e-6,),
    "matrix.max_pooling": (True,),
    "matrix.global_pooling": (False,),
    "matrix.dropout": (0.5,),
    "matrix.shift": (2,),
    "autoencoder.least_epoch": (1.0,),
    "autoencoder.negative_slope": (0.2,),
    "autoencoder.dropout": (0.1,),
    "autoencoder.weight_decay": (2.0,),
    "top.weight_decay": (1e-4,),
    "autoencoder.min_learning_rate_fraction": (0.02,),
    "encoder.initial_stddev": (1e-3,),
    "encoder.image_length": (0.5,),
    "encoder.min_learning_rate_fraction": (0.1,),
    "encoder.joint_rank": (64,),
    "encoder.joint_components": (3,),
    "encoder.visited_components": (10,),
    "encoder.posterior_components": (10,),
    "codes.posterior_components": (10, 40),
    "codes.joint_components": (3,),
    "encoder.amplitude": (False,),
    "decoder.coefficient_sum": ("mean",),
    "decoder.initial_stddev": (1e-3,),
    "decoder.use_bias": (False,),
    "decoder.bias_rate": (1.0,),
    "rbm.burn_in": (100,),
    "rbm.centering": (True,),
    "rbm.chains_initializer": ("data",),
    "rbm.initial_stddev": (0.01,),
    "rbm.min_learning_rate_fraction": (0.01,),
    "rbm.offset_rate": (0.01,),
    "experts.algorithm": ("cd", "ml"),
    "experts.centering": (False,),
    "experts.image_length": (0.3,),
    "experts.initial_hidden_bias": (-4.0,),
    "experts.initial_stddev": (0.01,),
    "experts.learn_variance": (False,),
    "experts.min_learning_rate_fraction": (0.1,),
    "experts.momentum": (0.9,),
    "experts.offset_rate": (0.01,),
    "experts.persistent_chains": (128,),
    "experts.softmax_over": ("outputs",),
    "top.algorithm": ("pcd",),
    "top.cd_steps": (1,),
    "top.initial_stddev": (0.01,),
    "top.min_learning_rate_fraction": (0.05,),
    "top.momentum": (0.5,),
    "top.offset_rate": (0.01,),
    "top.persistent_chains": (128,),
}

# Defaults of earlier versions, by model: a run that was begun with one goes on with it.
FORMER_DEFAULTS = {
    "capsules": {
        "encoder.initializer": "clusters",
        "decoder.weight_decay": 1e-4,
        "decoder.activity": 2.0,
        "decoder.routing_iterations": 1,
    },
}


def current_setting(name, value):
    """Return the current name and value of a setting, such as `"encoder.capsules"`.

    >>> current_setting("encoder.temperature", 0.1)
    ('encoder.agreement_scale', 0.1)
    >>> current_setting("decoder.implementation", "streamed")
    ('compute.implementation', 'fused')
    """
    part, _, key = name.rpartition(".")
    rows = SETTINGS.get(part, {}) if part else SETTINGS
    new = rows.get(key, key)
    if isinstance(new, dict):
        return name, value
    new, change = new if isinstance(new, tuple) else (new, None)
    if part and key in _COMPUTE and part not in ("compute", "codes"):
        new = "compute.features_limit" if key == "limit" else f"compute.{key}"
        change = _COMPUTE[key]
    if change is not None and value is not None:
        value = change(value)
    return new if "." in new or not part else f"{part}.{new}", value


_METRICS = {
    "recognised": "confident",
    "frechet": "FID",
    "kernel_distance": "KID",
    "kernel_distance_error": "KID_error",
    "modal_classes": "class_coverage",
}


def current_metric(name):
    """Return the current name of a metric: those of held-out images are named as in Keras.

    >>> current_metric("held_out_relative_error"), current_metric("frechet")
    ('val_relative_error', 'FID')
    """
    is_former = isinstance(name, str) and name.startswith("held_out_")
    return f"val_{name.removeprefix('held_out_')}" if is_former else _METRICS.get(name, name)


def current_metrics(values):
    """Return nested dicts of metrics of any version by current names."""
    if not isinstance(values, dict):
        return values
    return Metrics({name: current_metrics(value) for name, value in values.items()})


class Metrics(dict):
    """Metrics by name, which are also found by their former names.

    >>> metrics = Metrics({"held_out_accuracy": 0.5})
    >>> metrics, metrics["held_out_accuracy"], "held_out_accuracy" in metrics
    ({'val_accuracy': 0.5}, 0.5, True)
    """

    def __init__(self, values=()):
        super().__init__((current_metric(name), value) for name, value in dict(values).items())

    def __missing__(self, name):
        now = current_metric(name)
        if now not in self.keys():
            raise KeyError(name)
        return self[now]

    def __contains__(self, name):
        return super().__contains__(current_metric(name))

    def get(self, name, default=None):
        return super().get(current_metric(name), default)


def current_settings(values):
    """Return nested dicts of settings of any version by current names, and what is lost.

    The second dict holds removed settings whose value is not the one that the code now has.
    """
    found, lost, removed = {}, {}, {}
    for name, value in values.items():
        pairs = value.items() if isinstance(value, dict) else [(None, value)]
        for key, each in pairs:
            place = name if key is None else f"{name}.{key}"
            new, each = current_setting(place, each)
            if new in REMOVED:
                removed[new] = each
                continue
            part, _, key = new.rpartition(".")
            (found.setdefault(part, {}) if part else found)[key] = each
        if isinstance(value, dict) and not value:
            found.setdefault(name, {})
    for name, value in removed.items():
        known = REMOVED[name]
        if isinstance(known, dict):
            part = found.get(name.partition(".")[0], {})
            known = (known[part.get("published_code", False)],)
        if value not in known:
            lost[name] = value
    return found, lost
