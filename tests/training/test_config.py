"""Configurations: defaults, conversion, differences, refusals."""

import pytest

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.families import get
from keras_capsule_poe.models.capsule_poe import training as build
from keras_capsule_poe.training import RunConfig, Schedule
from keras_capsule_poe.training.config import read_toml

FAMILY = get("capsules")


def config(recipe=None, **settings):
    made = RunConfig(FAMILY, recipe)
    made.update({name.replace("__", "."): value for name, value in settings.items()})
    return made


@pytest.mark.parametrize("recipe", list(FAMILY.recipes))
def test_recipes_are_valid_and_survive_a_round_trip(recipe):
    made = config(recipe)
    made.check((28, 28, 1))
    again = RunConfig.from_dict(FAMILY, made.to_dict())
    assert again.to_dict() == made.to_dict() and again.recipe == recipe
    assert (made["primary"].center, made["encoder"].softmax_over) == {
        "generation": (True, "outputs"),
        "representation": (True, "outputs"),
        "detail": (True, "outputs"),
        "paper": (False, "inputs"),
        "affine": (False, "inputs"),
    }[recipe]


def test_a_setting_that_is_gone_is_passed_over_where_it_did_nothing():
    kept = config().to_dict()
    kept["autoencoder"]["least_epoch"] = 1.0
    assert RunConfig.from_dict(FAMILY, kept).to_dict() == config().to_dict()
    for name, value in {"least_epoch": 0.5, "filters": [8]}.items():
        # A value of any kind, as a damaged file may have it.
        spoilt = {**kept, "autoencoder": {**kept["autoencoder"], name: value}}
        with pytest.raises(ConfigError, match=name):
            RunConfig.from_dict(FAMILY, spoilt)


def test_only_the_affine_recipe_builds_capsules_with_a_bias():
    for recipe in FAMILY.recipes:
        made, is_affine = config(recipe), recipe == "affine"
        encoder, decoder = build.build_encoder(made, 6), build.build_decoder(made, 6)
        assert (encoder.experts.bias is not None) == is_affine
        assert decoder.primaries.bias is None
        assert encoder.bias_rate == made["encoder"].bias_rate


def test_the_paper_s_recipe_has_none_of_the_additions():
    made = config("paper")
    encoder, decoder = made["encoder"], made["decoder"]
    assert (encoder.activation_prior_weight, encoder.load_balancing, encoder.initializer) == (
        0,
        0,
        "noise",
    )
    assert not (encoder.whitening or decoder.offset or decoder.conditional or decoder.activity)
    assert encoder.routing_iterations > 1 and decoder.routing_iterations > 1


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("encoder.capsules", "7", 7),
        ("encoder.weight_decay", "1e-4", 1e-4),
        ("decoder.activity", "none", None),
        ("decoder.coefficient_sum", "mean", "mean"),
        ("decoder.coefficient_sum", "2", 2.0),
        ("primary.center", "false", False),
        ("image_size", [28, 32], (28, 32)),
        ("image_size", "32", (32, 32)),
        ("image_size", "28x32", (28, 32)),
        ("image_size", 28, (28, 28)),
        ("dataset", "mnist", "mnist"),
    ],
)
def test_values_are_converted_to_the_setting_s_kind(name, text, value):
    made = config()
    made.set(name, text)
    section, _, key = name.rpartition(".")
    assert getattr(made[section] if section else made, key) == value


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("encoder.capsules", "2.5", "a whole number"),
        ("encoder.capsules", True, "a whole number"),
        ("encoder.weight_decay", "nan", "a number"),
        ("encoder.weight_decay", float("inf"), "a number"),
        ("limit", float("inf"), "a whole number, or none"),
        ("image_size", [28.9, 28.9], "HxW"),
        ("image_size", [True, True], "HxW"),
        ("image_size", [float("inf"), 28], "HxW"),
        ("primary.center", "maybe", "true or false"),
        ("encoder.wings", 1, "capsules"),
        ("wings.encoder", 1, "wings"),
        ("wings", {"a": 1}, "autoencoder"),
        ("encoder", 3, "encoder"),
        ("seed.x", 1, "seed"),
        ("__class__.seed", 1, "__class__"),
    ],
)
def test_values_of_the_wrong_kind_are_refused_in_words(name, value, words):
    with pytest.raises(ConfigError) as refused:
        config().set(name, value)
    assert words in str(refused.value) and name.split(".")[0] in str(refused.value)
    assert "<class" not in str(refused.value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("encoder.momentum", 1.0),
        ("encoder.routing_iterations", 0),
        ("encoder.capsules", 0),
        ("encoder.temperature", -5),
        ("encoder.initializer", "anywhere"),
        ("encoder.joint_rank", 0),
        ("autoencoder.dropout", 1.0),
        ("autoencoder.precision", "mixed_float16"),
        ("autoencoder.min_learning_rate_fraction", -5),
        ("decoder.epochs", 0),
        ("decoder.feature_scale", 0),
        ("primary.target_length", -0.5),
        ("primary.dim", 7),
        ("limit", 0),
        ("seed", -1),
        ("seed", 5_000_000_000),
        ("checkpoint_seconds", 0),
        ("held_out", 0),
    ],
)
def test_values_out_of_range_are_refused_by_what_is_built(name, value):
    made = config()
    made.set(name, value)
    section, _, key = name.rpartition(".")
    with pytest.raises(ConfigError) as refused:
        made.check((28, 28, 1))
    assert section in str(refused.value) and key in str(refused.value)


def test_too_small_images_are_refused():
    with pytest.raises(ConfigError, match="20x20.*12x12"):
        config().check((12, 12, 1))


@pytest.mark.parametrize(
    "recipe, name, value",
    [
        ("representation", "encoder.temperature", 1),
        ("representation", "decoder.temperature", 2),
        ("paper", "encoder.load_balancing", 0.1),
        ("paper", "encoder.image_length", 0.5),
        ("generation", "encoder.bias_rate", 2.0),
        ("paper", "decoder.bias_rate", 2.0),
        ("generation", "encoder.initial_stddev", 0.1),
    ],
)
def test_a_setting_that_means_nothing_is_refused(recipe, name, value):
    made = config(recipe)
    made.check()
    made.set(name, value)
    with pytest.raises(ConfigError, match=f"{name} has no effect"):
        made.check()


@pytest.mark.parametrize("model", ["capsnet", "matrix-capsules"])
def test_a_data_set_brings_what_suits_it_unless_it_is_given(model):
    section = get(model).stages[0].section
    made = RunConfig(get(model), dataset="smallnorb:2.1.0")
    made.set(f"{section}.classes", 7)
    made.suit()
    net = made[section]
    assert (net.classes, net.augmentation, made.image_size) == (7, "norb", (48, 48))
    assert made.given == {"dataset", f"{section}.classes"}
    plain = RunConfig(get(model), dataset="mnist")
    plain.suit()
    assert plain.to_dict() == RunConfig(get(model), dataset="mnist").to_dict()
    config().suit()


def test_steps_mean_nothing_beside_epochs():
    made = config()
    made.update({"encoder": {"epochs": 3}})
    made.check()
    made.set("encoder.steps", 100)
    with pytest.raises(ConfigError, match="encoder.steps has no effect"):
        made.check()


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(ConfigError, match="generation, representation, detail, paper"):
        RunConfig(FAMILY, "soup")


def test_differences_name_the_setting_and_both_values():
    mine, theirs = config(), config()
    theirs.update({"encoder": {"capsules": 10}, "dataset": "mnist", "checkpoint_seconds": 5})
    assert mine.differences(theirs) == {
        "dataset": ("fashion_mnist", "mnist"),
        "encoder.capsules": (20, 10),
    }


def test_schedule_keeps_the_number_of_steps_about_the_same():
    schedule = Schedule(steps=900, batch_size=128)
    assert schedule.over(60_000) == (2, 469)
    epochs, steps = schedule.over(1_500)
    assert steps == 12 and 800 <= epochs * steps <= 1000
    assert Schedule(epochs=3, batch_size=128).over(1_500) == (3, 12)
    with pytest.raises(ValueError, match="batch_size"):
        Schedule(batch_size=0)


def test_unreadable_toml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="missing.toml"):
        read_toml(tmp_path / "missing.toml")
