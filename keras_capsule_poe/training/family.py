"""Duration of the training of a stage."""

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Epochs and batch size of a stage.

    If `epochs` is None, the number of epochs gives about `steps` steps. Small data sets then get
    more epochs.

    Attributes:
        epochs: int, or None.
        steps: int, approximate number of steps if `epochs` is None.
        batch_size: int, images in a step.

    Raises:
        ValueError: If a value is below 1.

    Example:

    >>> Schedule(steps=900, batch_size=32).over(60_000)
    (1, 1875)
    """

    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128

    def __post_init__(self):
        for name, value in vars(self).items():
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value!r}")

    def over(self, images: int) -> tuple[int, int]:
        """Return (epochs, steps of an epoch) for this number of training images."""
        steps = math.ceil(images / self.batch_size)
        return self.epochs or max(1, round(self.steps / steps)), steps


def schedule_of(section):
    """Return the `Schedule` of a section with `batch_size` and `epochs`, `steps` or both."""
    names = [field.name for field in dataclasses.fields(Schedule)]
    return Schedule(**{name: getattr(section, name) for name in names if hasattr(section, name)})


def training_steps(config, images):
    """Return a dict from stages that train to their steps on a number of images."""
    sections = {stage.name: config[stage.section] for stage in config.stages if stage.section}
    return {
        name: math.prod(schedule_of(section).over(images))
        for name, section in sections.items()
        if hasattr(section, "batch_size")
    }


def lazily(path: str) -> Callable[..., Any]:
    """Return a function that is imported at its first call.

    A family can then be listed without TensorFlow.

    Args:
        path: str, `"module:name"`.

    Returns:
        Function with the arguments and the result of the imported one.

    Example:

    >>> lazily("math:sqrt")(9.0)
    3.0
    """

    def call(*args, **kwargs):
        module, _, name = path.partition(":")
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of training. See `train` for an example.

    Attributes:
        name: str, also the name of the stage's folder in the run folder.
        run: Function of a `Run`; it writes the files in `writes` and returns a dict of metrics.
        section: str, the configuration section that it reads, or None. The stage also depends on
            the sections of earlier stages.
        writes: Names of its output files, relative to the run folder. Their digests are recorded,
            and later stages and commands reject changed files.
        cache: Names of files for later stages only, deleted when all stages are done.
        reads: Names of the files in the `cache` of earlier stages that it needs.
        pictures: Glob patterns of the pictures that it writes in the run folder.
        when: Function of a configuration; whether its run has this stage.
        fits: Function of (configuration, `ImageData`) that raises DataError or ConfigError for
            unsuitable images. It is called before any file changes.
        alone: bool, whether only the chief runs the stage while other processes wait.
    """

    name: str
    run: Callable
    section: str | None = None
    writes: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    when: Callable = lambda config: True
    fits: Callable = lambda config, data: None
    alone: bool = False


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Named set of settings.

    Attributes:
        text: str, its purpose.
        settings: dict, its differences from the defaults, as `RunConfig.update` takes them.
    """

    text: str
    settings: Mapping = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """Model family: how its models are configured, trained and loaded.

    Attributes:
        name: str, the value of the option `model`.
        text: str, one line of description.
        sections: dict, name of a configuration section to its dataclass. An attribute `ALIASES`
            of the class maps a former name of a setting to a pair: the current name, and a
            function from a former value to the current one, or None for the same value.
        stages: tuple of `Stage`, in order; the last one writes `model.keras`.
        recipes: dict of `Recipe` by name, the default first.
        load: Function of the path of `model.keras` to the trained model.
        assemble: Function of a `Run` whose stages but the last are done to the trained model, or
            None. With it, `fit` needs no export.
        check: Function of (configuration, image shape or None) that raises ValueError for
            settings with which the model cannot be built.
        outline: Function of (configuration, image shape) to two dicts for display: shapes and
            parameter counts.
        smallest: Function of a configuration to the minimum image height and width in pixels, or
            None.
        idle: Function of a configuration to a dict of settings without effect, with the reasons.
        verdict: Function of a dict of metrics by stage to sentences about the trained model.
        labelled: bool, whether training uses labels.
        options: dict, name of an extra command-line option to its setting, for instance
            `{"capsules": "encoder.capsules"}`.
        suits: dict, name of a data set to the settings that suit it, see `RunConfig.suit`.
        former_defaults: dict, name of a setting to its default in earlier versions. A run that was
            begun with it goes on with it.

    Example:

    >>> from keras_capsule_poe.families import get
    >>> [stage.name for stage in get("capsules").stages]
    ['autoencoder', 'features', 'encoder', 'decoder', 'export']
    """

    name: str
    text: str
    sections: Mapping
    stages: tuple[Stage, ...]
    recipes: Mapping
    load: Callable
    assemble: Callable | None = None
    check: Callable = lambda config, image_shape: None
    outline: Callable = lambda config, image_shape: ({}, {})
    smallest: Callable = lambda config: None
    idle: Callable = lambda config: {}
    verdict: Callable = lambda stages: []
    labelled: bool = False
    options: Mapping = dataclasses.field(default_factory=dict)
    suits: Mapping = dataclasses.field(default_factory=dict)
    former_defaults: Mapping = dataclasses.field(default_factory=dict)

    def stage(self, name: str) -> Stage | None:
        """Return the stage with this name, or None."""
        return next((stage for stage in self.stages if stage.name == name), None)
