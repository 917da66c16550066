"""Every setting is read where a model is built or trained, not only where it is described."""

import dataclasses

import pytest

from keras_capsule_poe import families
from keras_capsule_poe.training import RunConfig

# Modes without which settings of a family have no effect.
MODES = {
    "neurons": [{"top.capsules": 2}],
    "matrix-capsules": [{"matrix.decoder": "dense"}, {"matrix.network": "cnn"}],
}


def watched(section, read):
    """Makes a section note the names of its settings that are read."""

    class Watched(type(section)):
        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    section.__class__ = Watched


@pytest.mark.parametrize("family", families.names())
def test_every_setting_is_read(family):
    family = families.get(family)
    read = {name: set() for name in family.sections}
    for recipe in family.recipes:
        for mode in ({}, *MODES.get(family.name, ())):
            config = RunConfig(family, recipe)
            config.update(mode)
            for name, section in config.sections.items():
                watched(section, read[name])
            family.check(config, (28, 28, 1))
    unread = {
        f"{name}.{field.name}"
        for name, section in family.sections.items()
        for field in dataclasses.fields(section)
        if field.name not in read[name]
    }
    assert not unread
