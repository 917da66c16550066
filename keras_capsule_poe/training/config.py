"""Conversion of settings from files and the command line."""

import dataclasses
import math
import os
import sys
import types
import typing
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_capsule_poe.errors import ConfigError

if TYPE_CHECKING:
    from keras_capsule_poe.training.family import Family

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


# Bytes of a configuration file; it has some kilobytes.
_LARGEST_FILE = 2**20


def read_toml(path):
    """Return a TOML file as nested dicts; raise ConfigError if it is not readable."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise ValueError(f"it has more than {_LARGEST_FILE:,} bytes")
        # With or without a byte-order mark.
        return tomllib.loads(text.decode("utf-8-sig"))
    # ValueError: not TOML, not UTF-8, or a number with thousands of digits.
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error}") from error


def convert(name, value, kind):
    """Convert a value, maybe text, to the type of its setting, or raise ConfigError."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    optional = type(None) in kinds
    if optional and value in (None, "none"):
        return None
    words, change = _KINDS[float | str if {float, str} <= set(kinds) else kinds[0]]
    try:
        return change(value)
    except (KeyError, TypeError, ValueError, OverflowError):
        words += ", or none" if optional else ""
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


def _pair(value):
    sizes = value.lower().split("x") if isinstance(value, str) else value
    height, *width = map(_whole, (sizes,) if isinstance(sizes, int) else sizes)
    (width,) = width or (height,)
    return height, width


def _number_or_text(value):
    try:
        return _number(value)
    except ValueError:
        return _text(value)


# For each type, its description in messages and its conversion.
_KINDS = {
    bool: ("true or false", {True: True, False: False, "true": True, "false": False}.__getitem__),
    int: ("a whole number", _whole),
    float: ("a number", _number),
    str: ("text", _text),
    tuple[int, int]: ("a whole number of pixels, or height and width as HxW", _pair),
    # Settings that take a number or the name of a rule for it.
    float | str: ("a number or a word", _number_or_text),
}


def current(section, name, value):
    """Return the current name and value of a section's setting that may have a former name.

    Args:
        section: Dataclass of the section. Its `ALIASES` map a former name to a pair: the current
            name, and a function from a former value to the current one, or None for the same.
        name: str, `"section.setting"`.
        value: The value, or its text.
    """
    prefix, _, key = name.rpartition(".")
    aliases = getattr(section, "ALIASES", {})
    if key not in aliases:
        return name, value
    new, change = aliases[key]
    if change is not None:
        value = change(convert(name, value, typing.get_type_hints(section)[new]))
    return f"{prefix}.{new}", value


def with_current_names(family, values):
    """Return nested dicts of settings, for instance of an old `run.json`, with current names."""
    found = dict(values)
    for prefix, section in family.sections.items():
        if isinstance(kept := values.get(prefix), dict):
            pairs = [current(section, f"{prefix}.{key}", value) for key, value in kept.items()]
            found[prefix] = {name.rpartition(".")[2]: value for name, value in pairs}
    return found


@dataclasses.dataclass
class RunSettings:
    """Settings that every run has, for any model; see `RunConfig`."""

    dataset: str = "fashion_mnist"
    column: str | None = None
    image_size: tuple[int, int] | None = None
    grey: bool = False
    limit: int | None = None
    split: str | None = None
    held_out: int | None = None
    skip_broken: bool = False
    train_dir: str | None = None
    test_dir: str | None = None
    background: str | None = None
    max_value: int | None = None
    data_version: int = 2
    seed: int = 0
    deterministic: bool = False
    checkpoint_seconds: float = 60.0


# These settings do not affect the results, so they may differ when a run is resumed.
_FREE = ("recipe", "checkpoint_seconds")
_LARGEST_SEED = 2**31 - 1
_LARGEST_RATE = 3e38
# The graph unrolls these iterations: tracing many more would take hours.
_UNROLLED, _MOST_UNROLLED = ("routing_iterations", "inner_routing_iterations", "cd_steps"), 1000
# Removed settings that old folders still name, with the value that had no effect.
_RETIRED = {"autoencoder": {"least_epoch": 1.0}}


class RunConfig:
    """Configuration of a run: model family, recipe, run settings and the family's sections.

    `config.seed` reads a setting of the run, and `config["encoder"].dim` one of a section.
    A recipe changes the defaults, and `given` holds the names of the settings set after that.

    Args:
        family: `Family`, for instance `families.get("capsules")`.
        recipe: str, or None for the family's first recipe.
        **settings: Settings of the run, by name:

            - `dataset`, `column`, `image_size`, `grey`, `limit`, `skip_broken`, `train_dir`,
              `test_dir`, `background`, `max_value`, `data_version`: See `load_images`.
            - `split`: `"azimuth"` or `"elevation"`, to train on familiar viewpoints only, see
              `split_views`; None: train on all images.
            - `held_out`: int, number of training images, the last ones, that only monitor the
              training; None: 5%, at most 1000.
            - `seed`: int, the seed of all random numbers.
            - `deterministic`: bool, same results bit for bit on the same machine, but slower.
            - `checkpoint_seconds`: float, maximum seconds of training lost on interruption.

    Raises:
        ConfigError: If the recipe or a setting does not exist, or a value has the wrong type.

    Example:

    >>> from keras_capsule_poe.families import get
    >>> config = RunConfig(get("capsules"), "representation", dataset="digits")
    >>> config.set("encoder.capsules", "16")
    >>> config["encoder"].capsules, config.dataset, sorted(config.given)
    (16, 'digits', ['dataset', 'encoder.capsules'])
    """

    def __init__(self, family: "Family", recipe: str | None = None, **settings: Any) -> None:
        if not hasattr(family, "recipes"):
            raise TypeError(
                "`family` must be a Family, as `families.get('capsules')` gives it. "
                f"Received: family={family!r}"
            )
        recipe = recipe or next(iter(family.recipes))
        if recipe not in family.recipes:
            raise ConfigError(
                f"Model {family.name!r} has no recipe {recipe!r}; it has "
                f"{', '.join(family.recipes)}."
            )
        self.family, self.recipe = family, recipe
        self.settings = RunSettings()
        self.sections = {name: section() for name, section in family.sections.items()}
        self.given: set[str] = set()
        self.update(family.recipes[recipe].settings)
        self.given.clear()
        self.update(settings)

    def __getattr__(self, name):
        settings = self.__dict__.get("settings")
        if settings is None or not hasattr(settings, name):
            raise AttributeError(f"a configuration has no setting {name!r}")
        return getattr(settings, name)

    def __getitem__(self, section):
        return self.sections[section]

    def update(self, values: Mapping[str, Any]) -> None:
        """Set all values of nested dicts, such as those of a TOML file, as `set` does."""
        for name, value in values.items():
            self.set(name, value)

    def set(self, name: str, value: Any) -> None:
        """Set a run setting, a section's setting or a whole section.

        A former name of a setting sets the current one, with a `FutureWarning` that names it.

        Args:
            name: str, `"setting"`, `"section.setting"` or `"section"`.
            value: The value, or its text; for a section, a dict.

        Raises:
            ConfigError: If the setting does not exist or the value has the wrong type.
        """
        if isinstance(value, dict):
            if name not in self.sections:
                raise ConfigError(
                    f"Model {self.family.name!r} has no section [{name}]; it has "
                    f"{', '.join(self.sections)}."
                )
            self._set_section(name, value)
            return
        section, _, key = name.rpartition(".")
        target = self.sections.get(section) if section else self.settings
        former = name
        name, value = current(type(target), name, value)
        key = name.rpartition(".")[2]
        if name != former:
            shown = str(value).lower() if value is None or isinstance(value, bool) else value
            warnings.warn(f"{former} is deprecated: use {name}={shown}", FutureWarning, 2)
        kinds = typing.get_type_hints(type(target)) if target else {}
        if key not in kinds:
            known = ", ".join(kinds) or f"the sections {', '.join(self.sections)}"
            raise ConfigError(
                f"Model {self.family.name!r} has no setting {name!r}. Known here: {known}"
            )
        setattr(target, key, convert(name, value, kinds[key]))
        self.given.add(name)

    def _set_section(self, section, values):
        former = {}
        for key, value in values.items():
            name, _ = current(self.family.sections[section], f"{section}.{key}", value)
            if former.setdefault(name, key) != key:
                raise ConfigError(
                    f"{section}.{former[name]} and {section}.{key} are two names of one setting: "
                    f"give {name} alone."
                )
        for key, value in values.items():
            self.set(f"{section}.{key}", value)

    def suit(self):
        """Apply the family's `suits` for the data set, except to settings in `given`."""
        given = set(self.given)
        for name, value in self.family.suits.get(self.dataset.partition(":")[0], {}).items():
            if name not in given:
                self.set(name, value)
        self.given = given

    @property
    def stages(self):
        """Tuple of the family's stages that a run with these settings has."""
        return tuple(stage for stage in self.family.stages if stage.when(self))

    def check(self, image_shape=None):
        """Check all values, and that the model can be built with them.

        Args:
            image_shape: (H, W, C), or None if it is not known yet.

        Raises:
            ConfigError: If a value is out of range, or a given setting has no effect here.
        """
        from keras_capsule_poe.data.image_set import FAMILIAR

        settings = self.settings
        for right, name, wanted in (
            (0 <= settings.seed <= _LARGEST_SEED, "seed", f"between 0 and {_LARGEST_SEED}"),
            (settings.limit is None or settings.limit > 0, "limit", "above zero, or none"),
            (settings.held_out is None or settings.held_out > 0, "held_out", "above zero, or none"),
            (settings.split in (None, *FAMILIAR), "split", f"{' or '.join(FAMILIAR)}, or none"),
            (settings.checkpoint_seconds > 0, "checkpoint_seconds", "above zero"),
        ):
            if not right:
                value = getattr(settings, name)
                raise ConfigError(f"{name} must be {wanted}. Received: {value!r}")
        for name, why in self.family.idle(self).items():
            if name in self.given:
                raise ConfigError(f"{name} has no effect here: {why}. Remove it.")
        for name, section in self.sections.items():
            _check_rates(name, section, self.given)
            _check_unrolled(name, section)
        try:
            self.family.check(self, image_shape)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(" ".join(str(error).split())) from error

    def numbers_given(self, stage):
        """Return the float settings in `given`, except learning rates: `"decoder.activity=0.1"`.

        Args:
            stage: str; settings of sections after the one with this name are left out.
        """
        names = list(self.sections)
        names = names[: names.index(stage) + 1] if stage in names else names
        found = []
        for name in sorted(self.given):
            section, _, key = name.rpartition(".")
            value = getattr(self[section], key) if section in names else None
            if isinstance(value, float) and key != "learning_rate":
                found.append(f"{name}={value:g}")
        return ", ".join(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as nested dicts of plain values."""
        return {
            "model": self.family.name,
            "recipe": self.recipe,
            **dataclasses.asdict(self.settings),
            **{name: dataclasses.asdict(section) for name, section in self.sections.items()},
        }

    @classmethod
    def from_dict(cls, family: "Family", values: Mapping[str, Any]) -> "RunConfig":
        """Create the configuration from a result of `to_dict`, also one of an earlier version.

        Args:
            family: `Family` of the configuration.
            values: dict.

        Raises:
            ConfigError: If a setting does not exist or a value has the wrong type.
        """
        values = {name: value for name, value in values.items() if name != "model"}
        for section, retired in _RETIRED.items():
            if isinstance(kept := values.get(section), dict):
                gone = retired.items()
                values[section] = {k: v for k, v in kept.items() if (k, v) not in gone}
        # Runs of earlier versions do not have it. It is of no effect for data sets by name.
        dataset = str(values.get("dataset", ""))
        is_path = dataset.startswith((".", "~", os.sep)) or dataset.endswith(".npz")
        if is_path or os.path.isdir(dataset):
            values.setdefault("data_version", 1)
        config = cls(family, values.pop("recipe", None))
        config.update(with_current_names(family, values))
        config.given.clear()
        return config

    def adopt(self, saved, sections=()):
        """Set what was not given as in a saved configuration, where it may differ.

        These are values that the data determine and, in `sections`, the defaults of an earlier
        version.
        """
        for name, former in self.family.former_defaults.items():
            section, _, key = name.partition(".")
            if section in sections and name not in self.given:
                if getattr(saved[section], key) == former:
                    setattr(self[section], key, former)
        if "data_version" not in self.given:
            self.settings.data_version = saved.data_version
        for name, section in self.sections.items():
            if hasattr(section, "classes") and f"{name}.classes" not in self.given:
                section.classes = saved[name].classes

    def differences(self, other):
        """Return the settings that differ and affect the results, as {name: (mine, theirs)}."""
        mine, theirs = _flat(self.to_dict()), _flat(other.to_dict())
        return {
            name: (mine.get(name), theirs.get(name))
            for name in dict.fromkeys([*mine, *theirs])
            if name not in _FREE and mine.get(name) != theirs.get(name)
        }


def _check_rates(name, section, given):
    """Raise for learning rates and weight decays with which training cannot succeed."""
    rate = getattr(section, "learning_rate", None)
    if rate is None:
        return
    if not 0 < rate < _LARGEST_RATE:
        raise ConfigError(
            f"{name}: `learning_rate` must be above zero and below {_LARGEST_RATE:.0e}, "
            f"for numbers of 32 bits. Received: learning_rate={rate!r}"
        )
    decay = getattr(section, "weight_decay", 0.0)
    if f"{name}.weight_decay" in given and rate * decay >= 1:
        raise ConfigError(
            f"{name}: `weight_decay` must be below {1 / rate:g}, one by the learning rate: each "
            f"step takes their product off every weight, a share of it. "
            f"Received: weight_decay={decay!r} and learning_rate={rate!r}"
        )


def _check_unrolled(name, section):
    for key in _UNROLLED:
        value = getattr(section, key, None)
        if value is not None and value > _MOST_UNROLLED:
            raise ConfigError(
                f"{name}: `{key}` must be at most {_MOST_UNROLLED}. Received: {key}={value!r}"
            )


def _flat(values, prefix=""):
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
