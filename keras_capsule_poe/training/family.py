"""What the engine must know of a family of models. Plain data: importing a family is quick."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping


def lazily(path):
    """A function by its place `"module:name"`, imported when it is first called.

    So a family can be listed, and its settings shown, without TensorFlow.

    Examples:

    >>> lazily("math:sqrt")(9.0)
    3.0
    """

    def call(*args, **kwargs):
        module, _, name = path.partition(":")
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of training; its folder in the run's is called as it is.

    Attributes:
        name: str.
        run: Function of a `Run` to a dict of what it measured; it leaves the files of `writes`.
        section: str, the section of the configuration that it reads, or None. It depends on
            those of the stages before it, too.
        writes: Files that it leaves, relative to the run's folder: later stages and commands
            trust them only as they were written.
        cache: Files that it leaves for later stages alone, removed when all are done.
        reads: Files of earlier stages' `cache` that it needs.
        pictures: Patterns of pictures that it leaves in the run's folder.
        cost: Function of (configuration, image shape, training images, held-out images) to a
            `Cost`, or None where it takes what it takes.
        when: Function of a configuration to whether its run has this stage.
        fits: Function of (configuration, `ImageData`); raises DataError or ConfigError for images
            that it cannot be trained on. It is asked before anything on disk changes.
        alone: bool, whether of several processes the chief alone does it, and the others wait.
    """

    name: str
    run: Callable
    section: str | None = None
    writes: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    cost: Callable | None = None
    when: Callable = lambda config: True
    fits: Callable = lambda config, data: None
    alone: bool = False


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a stage would take.

    Attributes:
        flops: float, floating-point operations in all.
        share: float, of the machine's large float32 product rate that the stage reaches.
        epochs, steps: int, in all.
        memory: float, bytes that it holds beyond the images.
        disk: float, bytes that it leaves on disk while training lasts.
        note: str, what a person should know of how it is done.
    """

    flops: float
    share: float
    epochs: int = 1
    steps: int = 1
    memory: float = 0
    disk: float = 0
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A named set of settings: what it is for, and its differences from the defaults."""

    text: str
    settings: Mapping = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models: how they are set up, trained and loaded.

    Attributes:
        name: str, as in the command line.
        text: str, one line on what it is.
        sections: dict of the name of a section to its dataclass, whose fields are keyword
            arguments of what is built from it.
        stages: tuple of `Stage`, in order; the last one leaves `model.keras`.
        recipes: dict of `Recipe`, the default first.
        check: Function of (configuration, image shape); raises ValueError for settings that
            cannot be built. The image shape is None where it is not known yet.
        load: Function of the path of `model.keras` to the trained model.
        outline: Function of (configuration, image shape) to two dicts, shapes and numbers of
            parameters, for people to read.
        smallest: Function of a configuration to the least height and width of images in pixels
            that it can take, or None where any will do.
        idle: Function of a configuration to a dict of the settings that mean nothing beside its
            others, and why.
        labelled: bool, whether it is trained on labels, so that a run is of these labels, too.
        options: dict of short names of settings, `{"capsules": "encoder.capsules"}`, that the
            command line has as options of their own.
        suits: dict of a data set's name to the settings that it asks for, by name, as
            `RunConfig.suit` takes them.
    """

    name: str
    text: str
    sections: Mapping
    stages: tuple[Stage, ...]
    recipes: Mapping
    load: Callable
    check: Callable = lambda config, image_shape: None
    outline: Callable = lambda config, image_shape: ({}, {})
    smallest: Callable = lambda config: None
    idle: Callable = lambda config: {}
    labelled: bool = False
    options: Mapping = dataclasses.field(default_factory=dict)
    suits: Mapping = dataclasses.field(default_factory=dict)

    def stage(self, name):
        """The stage of that name, or None."""
        return next((stage for stage in self.stages if stage.name == name), None)
