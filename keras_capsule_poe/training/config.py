"""What a training run is made of: plain data, no TensorFlow."""

import dataclasses
import math
from dataclasses import dataclass, field

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training.settings import converted


@dataclass
class AutoencoderConfig:
    """The convolutional autoencoder and its training by backpropagation.

    `optimizer`: `"muon"` or `"adam"`. `weight_decay`: how fast weights that nothing holds up
    shrink, in units of the learning rate; it keeps the features in few directions. `steps`: about
    how many, where `epochs` says nothing.
    """

    filters: int = 128
    dropout: float = 0.1
    negative_slope: float = 0.2
    epochs: int | None = None
    steps: int = 900
    batch_size: int = 32
    optimizer: str = "muon"
    learning_rate: float = 2e-3
    final_rate: float = 0.02
    weight_decay: float = 2.0
    precision: str = "auto"


@dataclass
class PrimaryConfig:
    """Primary capsules: how features are cut, centred and scaled."""

    dim: int = 8
    center: bool = True
    target_length: float = 0.14


@dataclass
class RoutingConfig:
    """Options of routing by agreement that encoder and decoder share."""

    iterations: int = 3
    temperature: float = 1.0
    normalize: str = "outputs"
    agreement: str = "cosine"
    scale: float | None = None
    implementation: str = "streamed"


@dataclass
class ContrastiveConfig(RoutingConfig):
    """Training by contrastive divergence: SGD with momentum, decay and L2.

    `steps`: about how many, where `epochs` says nothing.
    """

    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128
    learning_rate: float = 0.02
    momentum: float = 0.9
    final_rate: float = 0.1
    l2: float = 1e-3
    initial_stddev: float = 1e-3


@dataclass
class EncoderConfig(ContrastiveConfig):
    """The capsule encoder, maps W.

    `start`: the maps start as images of length `image_length`, from `"clusters"` or drawn at
    `"random"`, or as `"noise"`. `frames`: whether codes are turned into each expert's own frame.
    `visited_components`, and for each winning capsule `joint_components` of `joint_rank`: of the
    mixtures that describe the codes of training, of single capsules and of all.
    """

    capsules: int = 20
    dim: int = 16
    scale: float | None = 5.0
    learning_rate: float = 0.2
    temperature: float = 0.1
    start: str = "clusters"
    image_length: float | None = 0.5
    activation_prior: float = 2.0
    prior_start: float = 2.0
    anneal: float = 0.5
    balance: float = 0.03
    frames: bool = True
    visited_components: int = 10
    joint_components: int = 3
    joint_rank: int = 64


@dataclass
class DecoderConfig(ContrastiveConfig):
    """The capsule decoder, maps U; see `CapsuleDecoder`."""

    iterations: int = 0
    learning_rate: float = 0.5
    l2: float = 1e-4
    normalize: str = "inputs"
    feature_scale: float = 1.0
    activity: float | None = 2.0
    offset: bool = True
    conditional: bool = True
    keep: int | None = None


@dataclass
class RunConfig:
    """A whole run: data set, seed and one section for each stage."""

    dataset: str = "fashion_mnist"
    column: str | None = None
    image_size: tuple[int, int] | None = None
    grey: bool = False
    limit: int | None = None
    skip_broken: bool = False
    seed: int = 0
    deterministic: bool = False
    autoencoder: AutoencoderConfig = field(default_factory=AutoencoderConfig)
    primary: PrimaryConfig = field(default_factory=PrimaryConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)

    def to_dict(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values):
        """A config from nested dicts, as `to_dict` gives or a TOML file holds.

        Raises:
            ConfigError: If a setting is unknown or has a value of the wrong kind or range.
        """
        config = cls()
        for name, value in values.items():
            config.set(name, value)
        return config

    def set(self, name, value):
        """Sets `name`, a setting or a `section.setting`; a section takes a dict.

        Raises:
            ConfigError: If it is unknown or the value is of the wrong kind.
        """
        if isinstance(value, dict):
            if not dataclasses.is_dataclass(getattr(self, name, None)):
                raise ConfigError(f"Unknown section [{name}]. Sections: {', '.join(sections())}")
            for key, inner in value.items():
                self.set(f"{name}.{key}", inner)
            return
        section, _, key = name.rpartition(".")
        target = getattr(self, section, None) if section else self
        fields = _fields(target) if dataclasses.is_dataclass(target) else {}
        if key not in fields or key in sections():
            known = ", ".join(sorted(set(fields) - set(sections()))) or ", ".join(sections())
            raise ConfigError(f"Unknown setting {name!r}. Known here: {known}")
        setattr(target, key, converted(name, value, fields[key].type))

    def check(self):
        """Raises ConfigError for values out of range."""
        _check_positive(self, "", ("limit",))
        _check_positive(self.autoencoder, "autoencoder.", ("filters", *_TRAINING))
        _check_positive(self.primary, "primary.", ("dim", "target_length"))
        for name in ("encoder", "decoder"):
            section = getattr(self, name)
            _check_positive(section, f"{name}.", (*_TRAINING, "scale", "initial_stddev"))
            _check(0 <= section.iterations, f"{name}.iterations", section.iterations, "0 or more")
            _check(0 <= section.momentum < 1, f"{name}.momentum", section.momentum, "in [0, 1)")
            _check(section.l2 >= 0, f"{name}.l2", section.l2, "0 or more")
            for key, choices in _CHOICES.items():
                if hasattr(section, key):
                    value = getattr(section, key)
                    _check(value in choices, f"{name}.{key}", value, " or ".join(choices))
        _check_positive(self.encoder, "encoder.", ("capsules", "dim", "image_length", *_MIXTURES))
        _check_positive(self.decoder, "decoder.", ("keep", "feature_scale"))
        activity = self.decoder.activity
        _check(activity is None or activity > 0, "decoder.activity", activity, "none or above zero")
        decay = self.autoencoder.weight_decay
        _check(decay >= 0, "autoencoder.weight_decay", decay, "0 or more")
        part = self.autoencoder
        rate, precision, optimizer = part.dropout, part.precision, part.optimizer
        _check(
            optimizer in _OPTIMIZERS, "autoencoder.optimizer", optimizer, " or ".join(_OPTIMIZERS)
        )
        _check(0 <= rate < 1, "autoencoder.dropout", rate, "in [0, 1)")
        _check(
            precision in _PRECISIONS, "autoencoder.precision", precision, " or ".join(_PRECISIONS)
        )
        _check(self.seed >= 0, "seed", self.seed, "0 or more")

    def differences(self, other):
        """Settings in which two configs differ, as {name: (mine, theirs)}."""
        mine, theirs = _flat(self.to_dict()), _flat(other.to_dict())
        return {
            name: (mine[name], theirs[name])
            for name in mine
            if _comparable(mine[name]) != _comparable(theirs[name])
        }


_TRAINING = ("epochs", "steps", "batch_size", "learning_rate")
_MIXTURES = ("visited_components", "joint_components", "joint_rank")
_PRECISIONS = ("auto", "float32", "mixed_bfloat16")
_OPTIMIZERS = ("muon", "adam")
_CHOICES = {
    "normalize": ("inputs", "outputs"),
    "agreement": ("cosine", "dot"),
    "implementation": ("streamed", "plain"),
    "start": ("clusters", "random", "noise"),
}


def schedule(options, images):
    """Epochs and steps an epoch of a stage.

    Without `epochs`, as many as make about `steps` steps: more of them on a small data set.

    Args:
        options: Section of a stage that trains.
        images: int, the number of training images.

    Returns:
        tuple of int (epochs, steps an epoch).
    """
    steps = math.ceil(images / options.batch_size)
    return options.epochs or max(1, round(options.steps / steps)), steps


def sections():
    """Names of the config's sections, in the order of training."""
    return ("autoencoder", "primary", "encoder", "decoder")


def _fields(target):
    return {field.name: field for field in dataclasses.fields(target)}


def _check(right, name, value, wanted):
    if not right:
        raise ConfigError(f"{name} must be {wanted}. Received: {value!r}")


def _check_positive(section, prefix, names):
    for name in names:
        value = getattr(section, name)
        _check(value is None or value > 0, prefix + name, value, "above zero")


def _flat(values, prefix=""):
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _comparable(value):
    return tuple(value) if isinstance(value, list) else value
