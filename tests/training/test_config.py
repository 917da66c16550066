"""Configurations: defaults, conversion, differences, schedules."""

import pytest

from keras_capsule_poe.training import RECIPES, ConfigError, RunConfig
from keras_capsule_poe.training.config import schedule
from keras_capsule_poe.training.settings import read_toml


def test_defaults_are_valid_and_survive_a_round_trip():
    config = RunConfig()
    config.check()
    assert RunConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_recipes_are_valid(recipe):
    config = RunConfig.from_dict(RECIPES[recipe])
    config.check()
    assert (config.primary.center, config.encoder.normalize) == {
        "generation": (True, "outputs"),
        "representation": (True, "outputs"),
        "paper": (False, "inputs"),
    }[recipe]


def test_the_paper_s_recipe_has_none_of_the_additions():
    config = RunConfig.from_dict(RECIPES["paper"])
    encoder, decoder = config.encoder, config.decoder
    assert (encoder.activation_prior, encoder.balance, encoder.start) == (0, 0, "noise")
    assert not (encoder.frames or decoder.offset or decoder.conditional or decoder.activity)
    assert encoder.iterations and decoder.iterations


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("encoder.capsules", "7", 7),
        ("encoder.l2", "1e-4", 1e-4),
        ("encoder.scale", "none", None),
        ("primary.center", "false", False),
        ("decoder.keep", 2, 2),
        ("image_size", [28, 32], (28, 32)),
        ("dataset", "mnist", "mnist"),
    ],
)
def test_values_are_converted_to_the_setting_s_kind(name, text, value):
    config = RunConfig()
    config.set(name, text)
    section, _, key = name.rpartition(".")
    assert getattr(getattr(config, section) if section else config, key) == value


@pytest.mark.parametrize(
    "name, value",
    [
        ("encoder.capsules", "2.5"),
        ("encoder.capsules", True),
        ("encoder.l2", "nan"),
        ("primary.center", "maybe"),
        ("encoder.wings", 1),
        ("wings.encoder", 1),
        ("wings", {"a": 1}),
        ("encoder", 3),
        ("seed.x", 1),
    ],
)
def test_values_of_the_wrong_kind_are_refused(name, value):
    with pytest.raises(ConfigError, match=name.split(".")[0]):
        RunConfig().set(name, value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("encoder.momentum", 1.0),
        ("encoder.iterations", -1),
        ("autoencoder.dropout", 1.0),
        ("autoencoder.precision", "mixed_float16"),
        ("autoencoder.optimizer", "sgd"),
        ("decoder.keep", 0),
        ("primary.target_length", -0.5),
        ("limit", 0),
        ("seed", -1),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    config = RunConfig()
    config.set(name, value)
    with pytest.raises(ConfigError, match=name):
        config.check()


def test_differences_name_the_setting_and_both_values():
    mine, theirs = RunConfig(), RunConfig()
    theirs.encoder.capsules = 10
    theirs.dataset = "mnist"
    assert mine.differences(theirs) == {
        "dataset": ("fashion_mnist", "mnist"),
        "encoder.capsules": (20, 10),
    }


def test_schedule_keeps_the_number_of_steps_about_the_same():
    options = RunConfig().encoder
    assert schedule(options, 60_000) == (2, 469)
    epochs, steps = schedule(options, 1_500)
    assert steps == 12 and 800 <= epochs * steps <= 1000
    options.epochs = 3
    assert schedule(options, 1_500) == (3, 12)


def test_unreadable_toml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="missing.toml"):
        read_toml(tmp_path / "missing.toml")
