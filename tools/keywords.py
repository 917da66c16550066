"""Settings of all models as types of keyword arguments, for type checkers.

`python tools/keywords.py` writes them to keras_capsule_poe/_keywords.pyi, from the fields of the
settings. A test fails if the file differs.
"""

import inspect
import subprocess
import sys
import types
import typing
from pathlib import Path

from keras_capsule_poe import registry
from keras_capsule_poe.models.base.model import OF_KERAS
from keras_capsule_poe.training.settings import Part, RegisteredClass, Size

TARGET = Path(__file__).parents[1] / "keras_capsule_poe/_keywords.pyi"
HEAD = '''"""Settings of models as keyword arguments. Written by tools/keywords.py: do not edit."""

from os import PathLike
from typing import Any, Literal, TypedDict
'''
# Types that also take other values than those that they keep.
GIVEN = {Size: "int | str | tuple[int, int]", RegisteredClass: "type[Any] | str"}
# Further keywords of the constructors, and of `train`.
MADE = {"dataset": "str", "groups": "str | None", **dict.fromkeys(OF_KERAS, "Any")}
TRAINED = {
    "folder": "str | PathLike[str] | None",
    **dict.fromkeys(("epochs", "batch_size"), "int | None"),
    "verbose": "int | str",
    **dict.fromkeys(("callbacks", "groups", "data_dir", "manual_dir", "store"), "Any"),
}


def text_of(annotation):
    """Return the source of the type of a value that a field takes."""
    if annotation in GIVEN:
        return GIVEN[annotation]
    origin, given = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return text_of(given[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(text_of(each) for each in given)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, given))}]"
    return "None" if annotation is type(None) else annotation.__name__


def fields(kind):
    """Return the types of the fields of a class of settings, by name, as source."""
    found = typing.get_type_hints(kind, include_extras=True)
    return {name: text_of(found[name]) for name in kind.model_fields if not is_part(found[name])}


def is_part(annotation):
    return isinstance(annotation, type) and issubclass(annotation, Part)


def typed_dict(name, bases, values):
    """Return the source of a `TypedDict` of optional keys, which has those of its bases, too."""
    head = f"class {name}({', '.join(bases or ['TypedDict'])}, total=False):"
    return "\n".join(
        [head, *(f"    {key}: {value}" for key, value in values.items() or [])]
        if values
        else [f"{head} ..."]
    )


def title_of(kind):
    return kind.__name__.removesuffix("Settings").removesuffix("Part")


class Sections:
    """Dicts of the sections of all models. Keys that need no section have a dict of their own."""

    def __init__(self, short):
        self.short, self.sources = short, {}

    def name(self, kind):
        """Return the name of the dict of a class of settings, after its source is there."""
        title = title_of(kind)
        if f"{title}Section" not in self.sources:
            short, bases = self.short.get(kind, {}), []
            rest, base = without(fields(kind), short), kind.__mro__[1]
            if base is not Part and fields(base).items() <= rest.items():
                bases.append(self.name(base))
                rest = without(rest, fields(base))
            if short:
                bases.append(f"{title}Names")
                alike = self.names_alike(base)
                own = without(short, alike)
                named = [f"{title_of(base)}Names"] if alike else []
                self.sources[f"{title}Names"] = typed_dict(f"{title}Names", named, own)
            self.sources[f"{title}Section"] = typed_dict(f"{title}Section", bases, rest)
        return f"{title}Section"

    def names_alike(self, base):
        """Return the short names that all classes derived from `base` have, after their source."""
        kinds = [kind for kind in self.short if kind.__mro__[1] is base and base is not Part]
        found = common_of([self.short[kind] for kind in kinds]) if len(kinds) > 1 else {}
        if found:
            title = f"{title_of(base)}Names"
            self.sources.setdefault(title, typed_dict(title, (), found))
        return found


class Model:
    """Keywords of a model by name: those of its constructor and those of `train`."""

    def __init__(self, name):
        self.kind = registry.model_class(name)
        self.name, self.settings = self.kind.__name__, registry.settings(name)
        self.parts = {name: type(part) for name, part in self.settings.parts.items()}
        names = [name for kind in self.parts.values() for name in kind.model_fields]
        found = [name.replace("-", "_") for name in self.settings.OPTIONS]
        found += [name for name in names if names.count(name) == 1]
        # Of each keyword the section and the name in it.
        self.places = {name: self.settings._place(name).split(".") for name in found}
        short = {name: fields(self.parts[part])[key] for name, (part, key) in self.places.items()}
        values = {"recipe": f"{self.name}Preset", **short, **fields(type(self.settings))}
        values |= dict.fromkeys(self.parts, "section")
        self.made = signature(self.kind.__init__, {**values, **MADE})
        self.trained = without({**values, **TRAINED}, ("dataset", "model"))
        self.both = without(common_of([self.made, self.trained]), {**MADE, **TRAINED})

    def texts(self, shared, sections):
        """Return the sources of the preset's type and of the dicts of keywords."""
        titles = {part: sections.name(kind) for part, kind in self.parts.items()}
        kinds = [kind for kind in self.parts.values() if sections.short[kind]]
        known = {*shared, *(name for kind in kinds for name in sections.short[kind])}
        presets = ", ".join(map(repr, self.settings.PRESETS))
        bases = ["Shared", *(sections.name(kind).replace("Section", "Names") for kind in kinds)]
        title, own = f"{self.name}Keywords", without(self.both, known)
        found = [f"{self.name}Preset = Literal[{presets}] | None"]
        found.append(typed_dict(title, bases, {k: titles.get(k, v) for k, v in own.items()}))
        known |= own.keys()
        made, trained = (
            without(self.made, {*known, *MADE}),
            without(self.trained, {*known, *TRAINED}),
        )
        trained = {**trained, "preset": f"{self.name}Preset"}
        for suffix, base, values in (("Arguments", "Made", made), ("Training", "Trained", trained)):
            values = {name: titles.get(name, value) for name, value in values.items()}
            found.append(typed_dict(f"{self.name}{suffix}", [title, base], values))
        return found


def signature(function, values):
    """Return the values without those that are arguments of their own."""
    return without(values, inspect.signature(inspect.unwrap(function)).parameters)


def common_of(dicts):
    """Return the items that all dicts have."""
    first, *others = dicts
    return {k: v for k, v in first.items() if all(each.get(k) == v for each in others)}


def without(values, taken):
    return {name: value for name, value in values.items() if name not in taken}


def short_names(models, shared):
    """Return for each class of settings the fields that are keywords in all models that have it."""
    found = {}
    for model in models:
        for part, kind in model.parts.items():
            own = {
                name: model.both[name]
                for name, place in model.places.items()
                if place == [part, name] and name in model.both and name not in shared
            }
            found[kind] = common_of([found.get(kind, own), own])
    return found


def source():
    """Return the text of the file."""
    models = [Model(name) for name in registry.names()]
    shared = without(common_of([each.both for each in models]), ["compute"])
    short = short_names(models, shared)
    sections = Sections(short)
    texts = [text for model in models for text in model.texts(shared, sections)]
    start = {"Shared": shared, "Made": MADE, "Trained": TRAINED}
    start_texts = [typed_dict(name, (), values) for name, values in start.items()]
    imports = (f"from {m.kind.__module__} import {m.name} as {m.name}" for m in models)
    return (
        "\n\n".join(
            [HEAD, "\n".join(sorted(imports)), *sections.sources.values(), *start_texts, *texts]
        )
        + "\n"
    )


if __name__ == "__main__":
    TARGET.write_text(source())
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", TARGET], check=True)
