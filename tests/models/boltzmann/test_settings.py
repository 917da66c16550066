"""Settings of a restricted Boltzmann machine: values that are refused, stages, former names."""

import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training.settings import Settings


@pytest.mark.parametrize(
    "given, words",
    [
        ({"binarize": "both"}, "rbm.binarize must be .*threshold.* or none. Received: 'both'"),
        ({"visible": "sounds"}, "rbm.visible must be .*'features'.* Received: 'sounds'"),
        ({"neurons": "ternary"}, "rbm.neurons must be .*Received: 'ternary'"),
        ({"hidden": 0}, "rbm.hidden must be .*at least 1. Received: 0"),
        ({"chains": 0}, "rbm.persistent_chains must be .*at least 1. Received: 0"),
        ({"algorithm": "pt", "temperatures": 1}, "rbm.temperatures must be .*at least 2"),
        ({"rbm.learning_rate": -1}, "rbm.learning_rate must be .*Received: -1"),
        ({"momentum": 1}, "rbm.momentum must be .*Received: 1"),
        ({"rbm.weight_decay": 25}, "rbm.weight_decay must be below 20"),
        ({"neurons": "unit", "binarize": "threshold"}, "rbm.binarize .*no effect.*'unit'"),
        ({"autoencoder.epochs": 3}, "autoencoder.epochs .*no effect.*rbm.visible is 'pixels'"),
        ({"primary": {"dim": 4}}, "primary.dim .*no effect.*rbm.visible is 'pixels'"),
        ({"visible": "features", "neurons": "unit"}, "rbm.neurons .*no effect.*'features'"),
        ({"algorithm": "cd", "chains": 9}, "rbm.persistent_chains .*no effect.*'cd'"),
        ({"temperatures": 9}, "rbm.temperatures .*no effect.*'pcd'"),
        ({"visible": "features"}, "at least 20x20 pixels .*Received: 8x8"),
    ],
)
def test_settings_that_cannot_be(given, words):
    with pytest.raises(ConfigError, match=words):
        registry.settings("rbm", **given).check((8, 8, 1))


def test_stages_and_presets():
    settings = registry.settings("rbm")
    settings.check((8, 8, 1))
    # A machine of pixels trains no autoencoder.
    assert list(settings.stages) == ["rbm", "export"] and settings.smallest() is None
    assert settings.rbm.binarization == "stochastic"
    settings = registry.settings("rbm", "features")
    settings.check((20, 20, 1))
    assert list(settings.stages) == ["autoencoder", "features", "rbm", "export"]
    assert settings.rbm.visible_units == "gaussian" and settings.rbm.binarization is None
    assert set(settings.steps(1000)) == {"autoencoder", "rbm"}
    settings = registry.settings("rbm", "small", neurons="unit")
    assert settings.rbm.visible_units == "unit" and settings.rbm.binarization is None


def test_settings_of_an_earlier_run():
    """Chains that start elsewhere cannot be resumed; a default that the code has by now can."""
    rbm = {"hidden": 5, "chains": 7, "centering": True, "offset_rate": 0.01, "initial_stddev": 0.01}
    former = {"recipe": "small", "rbm": {**rbm, "chains_initializer": "noise"}, "seed": 4}
    settings = registry.settings("rbm").from_dict(former)
    assert (settings.preset, settings.seed) == ("small", 4) and isinstance(settings, Settings)
    assert (settings.rbm.hidden, settings.rbm.persistent_chains) == (5, 7)
    assert settings.lost == {"rbm.chains_initializer": "noise"}
