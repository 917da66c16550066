"""Settings of models, validated as soon as they are given: in Python, TOML, options or run.json."""

import inspect
import os
import re
import sys
import types
import typing
import warnings
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import annotated_types
import pydantic

from keras_capsule_poe.errors import ConfigError, meant
from keras_capsule_poe.former_names import current_setting, current_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Bytes of a configuration file; it has some kilobytes.
_LARGEST_FILE = 2**20
_UNITS = "500MB, 20GB or 2TB"
# These settings do not affect the results, so they may differ when a run is resumed.
_FREE = ("preset", "checkpoint_seconds")
# All others of `Settings` say how images are found and read.
_ARGUMENTS = (
    *("model", "preset", "model_dir", "data_dir", "manual_dir", "store", "stage", "config"),
    *("replicas", "verbose", "fresh", "tensorboard", "dry_run"),
)
_NOT_OF_DATA = ("dataset", "seed", "deterministic", "checkpoint_seconds", "compute")

Count = Annotated[int, pydantic.Field(ge=1)]
Positive = Annotated[float, pydantic.Field(gt=0)]
NotNegative = Annotated[float, pydantic.Field(ge=0)]
Fraction = Annotated[float, pydantic.Field(ge=0, le=1)]
Momentum = Annotated[float, pydantic.Field(ge=0, lt=1)]
# Numbers of 32 bits end here.
Rate = Annotated[float, pydantic.Field(gt=0, lt=3e38)]
# A graph unrolls these iterations: tracing many more would take hours.
Iterations = Annotated[int, pydantic.Field(ge=1, le=1000)]


def _height_and_width(value):
    """Return (height, width) of one number, two numbers, or their text `HxW`."""
    sizes = value.lower().split("x") if isinstance(value, str) else value
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if any(isinstance(size, bool) for size in sizes):
        raise ValueError("another type")
    return sizes * 2 if len(sizes) == 1 else sizes


Size = Annotated[
    tuple[Count, Count],
    pydantic.BeforeValidator(_height_and_width),
    "a whole number of pixels, or height and width as HxW",
]


def _registered_name(value):
    """Return the name by which Keras knows a class; other values as they are."""
    if not isinstance(value, type):
        return value
    import keras

    name = keras.saving.get_registered_name(value)
    if keras.saving.get_registered_object(name) is not value:
        raise ValueError("a class that `keras.saving.register_keras_serializable` has registered")
    return name


RegisteredClass = Annotated[
    str,
    pydantic.BeforeValidator(_registered_name),
    "a class that is registered with Keras, or its registered name",
]


class Part(pydantic.BaseModel):
    """Settings of one part of a model. A field is a setting; its annotation is its range."""

    model_config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value, info):
        """Return None for "none"; refuse what pydantic would turn into a number or truth value."""
        kinds = _kinds(cls.model_fields[info.field_name].annotation)
        if value == "none" and type(None) in kinds:
            return None
        is_bool = isinstance(value, bool) or value in ("true", "false")
        if (bool in kinds) != is_bool and not (value is None and type(None) in kinds):
            if bool in kinds or isinstance(value, bool):
                raise ValueError("another type")
        return value


class Compute(Part):
    """How any model computes. These settings change no result beyond rounding.

    Attributes:
        precision: Number format of the convolutions; `auto` is the fastest of the hardware.
        implementation: Form of routing: `fused` and `xla` are fast, `reference` is readable;
            `auto` is the fastest form of the model.
        microbatch: Images for which gradients are computed at a time, to save memory; None: all.
        features_limit: Gigabytes of features on disk, or text such as "500MB". Above, features
            are computed for each batch.
    """

    precision: Literal["auto", "float32", "mixed_bfloat16"] = "auto"
    implementation: Literal["auto", "fused", "reference", "xla"] = "auto"
    microbatch: Count | None = None
    features_limit: NotNegative | str = 100.0

    @pydantic.field_validator("features_limit")
    @classmethod
    def _has_a_unit(cls, value):
        try:
            disk_limit(value)
        except ValueError:
            raise ValueError(f"a number of GB of at least 0, or with a unit, as {_UNITS}") from None
        try:
            return float(value)
        except ValueError:
            return value


def disk_limit(limit):
    """Return a disk limit in bytes, from a number of GB or text such as "500 MB"."""
    text = str(limit).upper().replace(" ", "")
    units = {"MB": 1e6, "GB": 1e9, "TB": 1e12}
    unit = text[-2:] if text[-2:] in units else "GB"
    size = float(text.removesuffix(unit)) * units[unit]
    if not 0 <= size < float("inf"):
        raise ValueError(limit)
    return size


# Images of a training that takes all steps of its settings.
MANY = 10_000
# Least share of the steps that fewer images take.
LEAST = 0.15


class Schedule(NamedTuple):
    """Epochs and batch size of a training.

    If `epochs` is None, the number of epochs gives about `steps` steps on `MANY` images or more.
    Fewer images take fewer steps, in proportion, but at least the share `least`.

    Example:

    >>> Schedule(steps=900, batch_size=32).over(60_000)
    (1, 1875)
    >>> Schedule(steps=900, batch_size=32).over(5_000)
    (3, 157)
    """

    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128
    least: float = LEAST

    def over(self, images: int) -> tuple[int, int]:
        """Return (epochs, steps of an epoch) for this number of training images."""
        steps = -(-images // self.batch_size)
        total = self.steps * min(1, max(self.least, images / MANY))
        return self.epochs or max(1, round(total / steps)), steps


class TrainedPart(Part):
    """Settings of a part that is trained by steps.

    Attributes:
        epochs: Passes over the training images. Overrides `steps`.
        steps: Approximate number of steps if `epochs` is None, for 10,000 images or more. Fewer
            images take fewer steps, but at least 15% of them (3 to 40% in other models).
        batch_size: Images of a step.
        learning_rate: Learning rate at the start.
    """

    least: ClassVar[float] = LEAST

    epochs: Count | None = None
    steps: Count = 900
    batch_size: Count = 128
    learning_rate: Rate = 0.01

    @property
    def schedule(self):
        """The `Schedule` of the training."""
        return Schedule(self.epochs, self.steps, self.batch_size, self.least)

    @property
    def first_rate(self):
        """The learning rate at the start, also if it follows from other settings."""
        return self.learning_rate


class Preset(NamedTuple):
    """A named set of settings: its purpose, and its differences from the defaults by part."""

    text: str
    settings: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({})


class Settings(Part):
    """Settings of a training. The class of a model's settings adds the parts of the model.

    Attributes:
        MODEL: Name of the model on the command line.
        TEXT: One line that describes the model.
        STAGES: Dict from each stage of training, in order, to the names of the parts whose
            settings it reads first. The last stage exports the model.
        PRESETS: Dict of `Preset` by name, the default first.
        OPTIONS: Dict from further command-line options to settings, such as
            `{"hidden": "rbm.hidden"}`.
        SUITS: Dict from the name of a data set to settings that suit it.
        LABELLED: Whether training uses labels.
        dataset, column, image_size, grey, limit, skip_broken, train_dir, test_dir, background,
        max_value, groups, labels, label_column, data_version: See
            `keras_capsule_poe.data.load_images`.
        split: Train on familiar viewpoints only, see `split_views`.
        held_out: Number of training images that only monitor the training: the last ones, or some
            of each class if those follow one another; None: 5%, at most 1000.
        seed: Seed of all random numbers.
        deterministic: Same results bit for bit on the same machine, but slower.
        checkpoint_seconds: Maximum seconds of training lost on interruption.
        compute: `Compute`.

    Example:

    >>> from keras_capsule_poe import registry
    >>> settings = registry.settings("capsules", "representation", dataset="digits")
    >>> settings.set("encoder.capsules", "16")
    >>> settings.encoder.capsules, settings.dataset, sorted(settings.given)
    (16, 'digits', ['dataset', 'encoder.capsules'])
    """

    MODEL: ClassVar[str] = ""
    TEXT: ClassVar[str] = ""
    STAGES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    PRESETS: ClassVar[Mapping[str, Preset]] = {"default": Preset("the default settings")}
    OPTIONS: ClassVar[Mapping[str, str]] = {}
    SUITS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    LABELLED: ClassVar[bool] = False

    dataset: str = "fashion_mnist"
    column: str | None = None
    image_size: Size | None = None
    grey: bool = False
    limit: Count | None = None
    split: Literal["azimuth", "elevation"] | None = None
    held_out: Count | None = None
    skip_broken: bool = False
    train_dir: str | None = None
    test_dir: str | None = None
    background: str | None = None
    max_value: int | None = None
    groups: str | None = None
    labels: str | None = None
    label_column: str | None = None
    data_version: int = 3
    seed: Annotated[int, pydantic.Field(ge=0, le=2**31 - 1)] = 0
    deterministic: bool = False
    checkpoint_seconds: Positive = 60.0
    compute: Compute = Compute()

    _preset: str = pydantic.PrivateAttr("")
    _given: set[str] = pydantic.PrivateAttr(default_factory=set)
    _lost: dict[str, Any] = pydantic.PrivateAttr(default_factory=dict)

    def __init__(self, preset: str | None = None, /, **values: Any) -> None:
        presets = self.PRESETS
        preset = preset or next(iter(presets))
        if preset not in presets:
            raise ConfigError(
                f"`preset` must be one of {', '.join(presets)} for the model {self.MODEL!r}. "
                f"Received: preset={preset!r}.{meant(preset, presets)}"
            )
        super().__init__()
        # Defaults are shared between instances, and a part is changed in place.
        for name in self.parts:
            setattr(self, name, getattr(self, name).model_copy())
        self._preset = preset
        self.update(presets[preset].settings)
        self._given = set()
        self.update(values)

    @property
    def preset(self):
        """Name of the preset."""
        return self._preset

    @property
    def given(self):
        """Names of the settings that were given, in place of those of the preset."""
        return self._given

    @property
    def lost(self):
        """Dict of settings of an earlier version that this version cannot follow."""
        return self._lost

    @property
    def parts(self):
        """Dict of the parts by name, `compute` last."""
        names = [name for name in type(self).model_fields if name != "compute"]
        found = {name: getattr(self, name) for name in (*names, "compute")}
        return {name: part for name, part in found.items() if isinstance(part, Part)}

    @property
    def stages(self):
        """Dict of the stages of training that these settings have, in order; see `STAGES`."""
        return dict(self.STAGES)

    def trained(self, stage):
        """Return the `TrainedPart` of a stage, or None."""
        found = [getattr(self, name) for name in self.STAGES[stage]]
        return next((part for part in found if isinstance(part, TrainedPart)), None)

    def steps(self, images: int) -> dict[str, int]:
        """Return the training steps of each stage that is trained, on a number of images."""
        found = {stage: self.trained(stage) for stage in self.stages}
        totals = {stage: part.schedule.over(images) for stage, part in found.items() if part}
        return {stage: epochs * steps for stage, (epochs, steps) in totals.items()}

    def idle(self) -> dict[str, str]:
        """Return the settings without effect here, each with the reason."""
        return {}

    def check_images(self, data: Any) -> None:
        """Raise `DataError` or `ConfigError` if the model cannot be trained on an `ImageData`."""

    def smallest(self) -> int | None:
        """Return the minimum height and width of images in pixels, or None."""
        return None

    def update(self, values: Mapping[str, Any]) -> None:
        """Set all values of nested dicts, such as those of a TOML file, as `set` does."""
        for name, value in values.items():
            self.set(name, value)

    def set(self, name: str, value: Any) -> None:
        """Set a setting, or several of a part.

        A former name sets the current one, with a `FutureWarning` that names it.

        Args:
            name: `"seed"`, `"encoder.capsules"`, `"encoder"` with a dict, or `"capsules"` if only
                one part has a setting of this name.
            value: The value or its text.

        Raises:
            ConfigError: If the setting does not exist or its value is not valid.
        """
        part, _, key = self._place(name).rpartition(".")
        if isinstance(value, Mapping):
            part, values = key, dict(value)
        else:
            values = {key: value}
        found = {}
        for former, value in values.items():
            place = f"{part}.{former}" if part else former
            given, (now, value) = value, current_setting(place, value)
            if now != place or (isinstance(given, str) and given != str(value)):
                shown = str(value).lower() if value is None or isinstance(value, bool) else value
                warnings.warn(f"{place} is deprecated: use {now}={shown}", FutureWarning, 2)
            if now in found:
                raise ConfigError(f"{now} is given by two names: give {now} alone.")
            found[now] = value
        for place, value in found.items():
            self._assign(place, value)

    def _place(self, name):
        """Return the full name of a setting that may be given by its last part alone."""
        option = name.replace("_", "-")
        if "." in name or name in type(self).model_fields:
            return name
        if option in self.OPTIONS:
            return self.OPTIONS[option]
        parts = {part: type(found) for part, found in self.parts.items()}
        places = [f"{p}.{name}" for p, kind in parts.items() if name in kind.model_fields]
        former = [f"{part}.{name}" for part in parts]
        now = {place: current_setting(place, None)[0] for place in former}
        # A former name leads to the present ones.
        found = {place: place for place in places} or {k: v for k, v in now.items() if k != v}
        if len(set(found.values())) > 1:
            pairs = (place.split(".") for place in dict.fromkeys(found.values()))
            listed = ", ".join(f"{part}={{{key!r}: ...}}" for part, key in pairs)
            raise ConfigError(f"`{name}` is a setting of several parts. Give one of {listed}.")
        return next(iter(found), name)

    def _assign(self, name, value):
        """Assign a validated value to a setting with its current name."""
        part, _, key = name.rpartition(".")
        if part and part not in self.parts:
            raise ConfigError(
                f"There is no part `{part}`.{meant(part, self.parts)} "
                f"Known are: {', '.join(self.parts)}."
            )
        target = getattr(self, part) if part else self
        kind = type(target)
        if not part and key in self.parts:
            raise ConfigError(
                f"`{name}` is a part: give its settings by name, such as a dict. "
                f"Received: {value!r:.80}"
            )
        if key not in kind.model_fields:
            self._refuse_name(name, key, kind)
        try:
            kind.__pydantic_validator__.validate_assignment(target.model_copy(), key, value)
        except pydantic.ValidationError as error:
            raise ConfigError(_message(name, kind.model_fields[key], value, error)) from None
        kind.__pydantic_validator__.validate_assignment(target, key, value)
        self._given.add(name)

    def _refuse_name(self, name, key, kind):
        if name in _ARGUMENTS:
            raise ConfigError(
                f"`{name}` is no setting of a model, but an option of `capspoe train`.",
                hint=f"option:{name}",
            )
        short = [option.replace("-", "_") for option in self.OPTIONS]
        every = [*kind.model_fields, *short]
        for part in self.parts.values():
            every += type(part).model_fields
        # Short names need no part.
        listed = ", ".join([*(short if kind is type(self) else ()), *kind.model_fields])
        raise ConfigError(
            f"There is no setting `{name}`.{meant(key, every)} Known here are: {listed}."
        )

    def set_all(self, **values: Any) -> None:
        """Set `epochs` or `batch_size` of every part that is trained; None leaves them."""
        for stage in self.stages:
            if (part := self.trained(stage)) is not None:
                name = next(name for name, found in self.parts.items() if found is part)
                for key, value in values.items():
                    if value is not None:
                        self.set(f"{name}.{key}", value)

    def suit(self) -> None:
        """Set what suits the data set, except settings in `given`."""
        given = set(self._given)
        for name, value in self.SUITS.get(self.dataset.partition(":")[0], {}).items():
            if name not in given:
                self.set(name, value)
        self._given = given

    def forget_images(self) -> None:
        """Count no option of data as given: a model's next training may be on other images."""
        self._given -= {name for name in Settings.model_fields if name not in _NOT_OF_DATA}

    def take_images(self, dataset: str, known: Collection[str] = ()) -> None:
        """Set what says of images in memory, named `dataset`, how they were found and read.

        Args:
            dataset: Name of the images.
            known: Names of options of data that are applied to images in memory.

        Raises:
            ConfigError: If another option of data was given. Those of files get their defaults.
        """
        for name, field in Settings.model_fields.items():
            if name in _NOT_OF_DATA or name in known:
                continue
            if name in self._given and name == "data_version":
                continue
            if name in self._given:
                raise ConfigError(
                    f"`{name}` has no effect on images in memory. Prepare them before `fit`, "
                    f"such as x[:5000]. Received: {name}={getattr(self, name)!r}"
                )
            setattr(self, name, field.default)
        self.set("dataset", dataset)

    def check(self, image_shape: tuple[int, int, int] | None = None) -> None:
        """Check that all settings go together, and with images (H, W, C) if they are known.

        Raises:
            ConfigError: If a given setting has no effect here, or images are too small.
        """
        for name, why in self.idle().items():
            if name in self._given:
                raise ConfigError(f"{name} has no effect here: {why}. Remove it.")
        for name, part in self.parts.items():
            rate, decay = getattr(part, "learning_rate", 0), getattr(part, "weight_decay", 0)
            if f"{name}.weight_decay" in self._given and rate * decay >= 1:
                raise ConfigError(
                    f"{name}.weight_decay must be below {1 / rate:g}, one by the learning rate: "
                    "each step takes their product off every weight, a share of it. "
                    f"Received: {decay!r}"
                )
        least = self.smallest()
        if image_shape and least and min(image_shape[:2]) < least:
            raise ConfigError(
                f"images must be at least {least}x{least} pixels for this model. "
                f"Received: {image_shape[0]}x{image_shape[1]}",
                hint="image_size",
            )

    def numbers_given(self, stage: str) -> str:
        """Return the fractional numbers in `given` up to a stage: `"decoder.activity=0.1"`."""
        stages = list(self.stages)
        seen = {part for each in stages[: stages.index(stage) + 1] for part in self.STAGES[each]}
        found = []
        for name in sorted(self._given):
            part, _, key = name.rpartition(".")
            value = getattr(getattr(self, part), key) if part in seen else None
            if isinstance(value, float) and key != "learning_rate":
                found.append(f"{name}={value:g}")
        return ", ".join(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as nested dicts of plain values, with `model` and `preset`."""
        return {"model": self.MODEL, "preset": self._preset, **self.model_dump(mode="json")}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Settings":
        """Return the settings of a result of `to_dict`, also of an earlier version.

        Raises:
            ConfigError: If a setting does not exist or its value is not valid.
        """
        values, lost = current_settings(dict(values))
        values.pop("model", None)
        given = values.pop("given", ())
        # Runs of earlier versions do not have it. It is of no effect for data sets by name.
        dataset = str(values.get("dataset", ""))
        is_path = dataset.startswith((".", "~", os.sep)) or dataset.endswith(".npz")
        if is_path or os.path.isdir(dataset):
            values.setdefault("data_version", 1)
        found = cls(values.pop("preset", None))
        found.update(values)
        found._given, found._lost = set(given), lost
        return found

    def adopt(self, saved: "Settings", former_defaults: Mapping[str, Any], parts: Any) -> None:
        """Set what was not given as in the settings of a run, where it may differ.

        These are values that the data determine and, in `parts`, `former_defaults` of an earlier
        version.
        """
        for name, former in former_defaults.items():
            part, _, key = name.partition(".")
            if part in parts and name not in self._given:
                if getattr(getattr(saved, part), key) == former:
                    setattr(getattr(self, part), key, former)
        if "data_version" not in self._given:
            self.data_version = saved.data_version
        for key in type(self.compute).model_fields:
            if f"compute.{key}" not in self._given:
                setattr(self.compute, key, getattr(saved.compute, key))
        for name, part in self.parts.items():
            if hasattr(part, "classes") and f"{name}.classes" not in self._given:
                part.classes = getattr(saved, name).classes

    def differences(self, other: "Settings") -> dict[str, tuple[Any, Any]]:
        """Return the settings that differ and affect the results: {name: (mine, other's)}."""
        mine, theirs = (flat({**each.to_dict(), **each.lost}) for each in (self, other))
        return {
            name: (mine.get(name), theirs.get(name))
            for name in dict.fromkeys([*mine, *theirs])
            if name not in _FREE
            and not name.startswith("compute.")
            and mine.get(name) != theirs.get(name)
        }


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


def meanings(kind):
    """Return the meaning of each field of a class of settings, from its docstrings."""
    found = {}
    for each in reversed(kind.__mro__):
        text = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        for name, meaning in re.findall(r"^    (\w+): (.+?)(?=^    \w|^\S|\Z)", text, re.M | re.S):
            found[name] = " ".join(meaning.split())
    return found


def allowed(field):
    """Return the words for the values of a field: "a whole number of at least 1, or none"."""
    texts = [extra for extra in field.metadata if isinstance(extra, str)]
    words = texts or _words(field.annotation, field.metadata)
    return " or ".join(dict.fromkeys(words)).replace(" or none", ", or none")


def _message(name, field, value, error):
    """Return the message of a value that its field refuses."""
    # A rule of our own has its own words.
    own = [str(e["ctx"]["error"]) for e in error.errors() if e["type"] == "value_error"]
    own = [text for text in own if " " in text and text != "another type"]
    return f"{name} must be {own[0] if own else allowed(field)}. Received: {value!r}"


def _words(kind, metadata=()):
    """Return the words for each kind of value that an annotation allows."""
    origin = typing.get_origin(kind)
    if origin is Annotated:
        first, *more = typing.get_args(kind)
        texts = [extra for extra in more if isinstance(extra, str)]
        return texts or _words(first, [*more, *metadata])
    if origin in (typing.Union, types.UnionType):
        found = [word for each in typing.get_args(kind) for word in _words(each, metadata)]
        return [word for word in found if word != "none"] + ["none"] * ("none" in found)
    if origin is Literal:
        return [repr(word) for word in typing.get_args(kind)]
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    words = plain.get(kind, "none")
    return [words + _range(metadata) if kind in (int, float) else words]


_BOUNDS = {
    annotated_types.Ge: ("ge", "of at least {:g}"),
    annotated_types.Gt: ("gt", "above {:g}"),
    annotated_types.Le: ("le", "of at most {:.10g}"),
    annotated_types.Lt: ("lt", "below {:g}"),
}


def _range(metadata):
    """Return the words for the bounds of a number."""
    found = []
    for extra in metadata:
        for bound in getattr(extra, "metadata", [extra]):
            if type(bound) in _BOUNDS:
                name, words = _BOUNDS[type(bound)]
                found.append(words.format(getattr(bound, name)))
    return f" {' and '.join(found)}" if found else ""


def _kinds(annotation):
    """Return the plain types that an annotation allows."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return {kind for each in typing.get_args(annotation) for kind in _kinds(each)}
    return {annotation}


def flat(values, prefix=""):
    """Return nested dicts as one, with names such as `encoder.dim`."""
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found
