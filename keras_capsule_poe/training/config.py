"""What a training run is made of: plain data, no TensorFlow."""

import dataclasses
import typing

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training.settings import convert


@dataclasses.dataclass
class RunSettings:
    """The settings that every run has, whatever the model.

    Attributes:
        dataset, column, image_size, grey, limit, skip_broken: See `load_images`.
        split: str, by which viewpoints only the familiar ones of these images are trained on,
            see `split_views`; None: all are.
        held_out: int, how many of the training images, the last, are not trained on but watch
            the training; None: 5%, at most 1000. See `ImageData.hold_out`.
        seed: int, what every random choice derives from.
        deterministic: bool, whether numbers are the same bit for bit on the same machine.
        checkpoint_seconds: float, training that an interrupt may cost at most.
    """

    dataset: str = "fashion_mnist"
    column: str | None = None
    image_size: tuple[int, int] | None = None
    grey: bool = False
    limit: int | None = None
    split: str | None = None
    held_out: int | None = None
    skip_broken: bool = False
    seed: int = 0
    deterministic: bool = False
    checkpoint_seconds: float = 60.0


# They change nothing of what a run computes, so they may differ when it is resumed.
_FREE = ("recipe", "checkpoint_seconds")
_LARGEST_SEED = 2**31 - 1
_LARGEST_RATE = 3e38
# A graph holds each of them: of many more it would take hours to make.
_UNROLLED, _MOST_UNROLLED = ("iterations", "inner_iterations", "chain_steps"), 1000
# Settings that are gone, with the value at which they did nothing: folders may still name them.
_RETIRED = {"autoencoder": {"least_epoch": 1.0}}


class RunConfig:
    """A whole run: the model, its recipe, the run's settings and the family's sections.

    `config.seed` is a setting of the run, `config["encoder"].dim` one of a section.

    Args:
        family: `Family`.
        recipe: str, or None for the family's first.
        **settings: Of the run, by name.

    Raises:
        ConfigError: If there is no such recipe or setting, or a value has the wrong kind.
    """

    def __init__(self, family, recipe=None, **settings):
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
        self.given = set()
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

    def update(self, values):
        """Sets everything in nested dicts, as a TOML file holds them.

        Raises:
            ConfigError: If a setting is unknown or of the wrong kind.
        """
        for name, value in values.items():
            self.set(name, value)

    def set(self, name, value):
        """Sets `name`, a setting of the run or a `section.setting`; a section takes a dict.

        Raises:
            ConfigError: If it is unknown or the value is of the wrong kind.
        """
        if isinstance(value, dict):
            if name not in self.sections:
                raise ConfigError(
                    f"Model {self.family.name!r} has no section [{name}]; it has "
                    f"{', '.join(self.sections)}."
                )
            for key, inner in value.items():
                self.set(f"{name}.{key}", inner)
            return
        section, _, key = name.rpartition(".")
        target = self.sections.get(section) if section else self.settings
        kinds = typing.get_type_hints(type(target)) if target else {}
        if key not in kinds:
            known = ", ".join(kinds) or f"the sections {', '.join(self.sections)}"
            raise ConfigError(
                f"Model {self.family.name!r} has no setting {name!r}. Known here: {known}"
            )
        setattr(target, key, convert(name, value, kinds[key]))
        self.given.add(name)

    def suit(self):
        """Takes what the data set asks for of the family's `suits`, where nothing else is given."""
        given = set(self.given)
        for name, value in self.family.suits.get(self.dataset.partition(":")[0], {}).items():
            if name not in given:
                self.set(name, value)
        self.given = given

    @property
    def stages(self):
        """Tuple of those `Stage` of the family that a run of these settings has."""
        return tuple(stage for stage in self.family.stages if stage.when(self))

    def check(self, image_shape=None):
        """Builds what the settings describe, without training it.

        Args:
            image_shape: (H, W, C), or None where it is not known yet.

        Raises:
            ConfigError: If a setting is out of range, or one was given that means nothing here.
        """
        from keras_capsule_poe.data.novel_views import FAMILIAR

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
                raise ConfigError(f"{name} means nothing here: {why}. Leave it out.")
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
        """The fractional numbers that were given, beside learning rates: text, maybe empty.

        They are what may be at fault, too, where training comes to nothing.

        Args:
            stage: str; sections after the one of its name do not matter to it.
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

    def to_dict(self):
        """All of it as nested dicts of plain values."""
        return {
            "model": self.family.name,
            "recipe": self.recipe,
            **dataclasses.asdict(self.settings),
            **{name: dataclasses.asdict(section) for name, section in self.sections.items()},
        }

    @classmethod
    def from_dict(cls, family, values):
        """The configuration that `to_dict` gave, maybe that of an earlier version.

        Raises:
            ConfigError: If a setting is unknown or of the wrong kind.
        """
        values = {name: value for name, value in values.items() if name != "model"}
        for section, retired in _RETIRED.items():
            if isinstance(kept := values.get(section), dict):
                gone = retired.items()
                values[section] = {k: v for k, v in kept.items() if (k, v) not in gone}
        config = cls(family, values.pop("recipe", None))
        config.update(values)
        config.given.clear()
        return config

    def differences(self, other):
        """Settings in which two configurations differ, as {name: (mine, theirs)}."""
        mine, theirs = _flat(self.to_dict()), _flat(other.to_dict())
        return {
            name: (mine.get(name), theirs.get(name))
            for name in dict.fromkeys([*mine, *theirs])
            if name not in _FREE and mine.get(name) != theirs.get(name)
        }


def _check_rates(name, section, given):
    """Refuses rates of a section with which no training can go well; Keras takes any number."""
    rate = getattr(section, "learning_rate", None)
    if rate is None:
        return
    if not 0 < rate < _LARGEST_RATE:
        raise ConfigError(
            f"{name}: `learning_rate` must be above zero and below {_LARGEST_RATE:.0e}, "
            f"for numbers of 32 bits. Received: learning_rate={rate!r}"
        )
    for decay in ("l2", "weight_decay"):
        value = getattr(section, decay, 0.0)
        if f"{name}.{decay}" in given and rate * value >= 1:
            raise ConfigError(
                f"{name}: `{decay}` must be below {1 / rate:g}, one by the learning rate: each "
                f"step takes their product off every weight, a share of it. "
                f"Received: {decay}={value!r} and learning_rate={rate!r}"
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
