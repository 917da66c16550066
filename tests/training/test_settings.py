"""Settings: ranges, text from files and options, former names, differences, refusals."""

import math
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest

from keras_capsule_poe import former_names, registry
from keras_capsule_poe.cli.train import _part_options, _short_options, wanted_settings
from keras_capsule_poe.errors import ConfigError, RunFailed
from keras_capsule_poe.io.records import write_record
from keras_capsule_poe.training import RunFolder, Schedule, acquire
from keras_capsule_poe.training.folder import RUN_FILE
from keras_capsule_poe.training.settings import meanings, read_toml

NAMES = ("capsules", "neurons", "rbm", "capsnet", "matrix-capsules")


def capsules(preset=None, **values):
    return registry.settings("capsules", preset, **values)


def value_of(settings, name):
    part, _, key = name.rpartition(".")
    return getattr(getattr(settings, part) if part else settings, key)


@pytest.mark.parametrize("model", NAMES)
def test_presets_are_valid_and_survive_a_round_trip(model):
    kind = registry.settings_class(model)
    for preset in kind.PRESETS:
        made = kind(preset)
        made.check((48, 48, 1))
        again = kind.from_dict(made.to_dict())
        assert again.to_dict() == made.to_dict() and again.preset == preset
        assert not made.given and not again.lost


@pytest.mark.parametrize("model", NAMES)
def test_every_setting_has_a_meaning(model):
    for part in registry.settings(model).parts.values():
        assert set(meanings(type(part))) >= set(type(part).model_fields), type(part)


def test_there_are_few_settings():
    found = [
        f"{model}.{name}.{key}"
        for model in NAMES
        for name, part in registry.settings(model).parts.items()
        for key in type(part).model_fields
        if name != "compute"
    ]
    found += [f"compute.{key}" for key in type(capsules().compute).model_fields]
    names = {name.rpartition(".")[2] for name in found}
    # Two name classes of the user.
    assert len(found) <= 166 and len(names) <= 79, (len(found), len(names))


def test_settings_need_no_keras():
    code = (
        "import sys\n"
        "from keras_capsule_poe import registry\n"
        f"for name in {NAMES}: registry.settings(name)\n"
        "assert not {'keras', 'tensorflow', 'jax'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_paper_s_preset_has_none_of_the_additions():
    made = capsules("paper")
    encoder, decoder = made.encoder, made.decoder
    assert (encoder.activation_prior_weight, encoder.load_balancing) == (0, 0)
    assert encoder.initializer == "noise" and encoder.softmax_over == "inputs"
    assert not (encoder.whitening or decoder.offset or decoder.conditional or decoder.activity)
    assert encoder.routing_iterations > 1 and decoder.routing_iterations > 1
    assert not made.primary.center and capsules().primary.center


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("encoder.capsules", "7", 7),
        ("encoder.weight_decay", "1e-4", 1e-4),
        ("decoder.activity", "none", None),
        ("encoder.coefficient_sum", "mean", "mean"),
        ("encoder.coefficient_sum", "2", 2.0),
        ("primary.center", "false", False),
        ("image_size", [28, 32], (28, 32)),
        ("image_size", "28x32", (28, 32)),
        ("image_size", "28", (28, 28)),
        ("dataset", "mnist", "mnist"),
        ("compute.features_limit", "500 MB", "500 MB"),
    ],
)
def test_text_becomes_the_kind_of_the_setting(name, text, value):
    made = capsules()
    made.set(name, text)
    found = value_of(made, name)
    assert found == value and type(found) is type(value) and made.given == {name}


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("encoder.capsules", "2.5", "a whole number of at least 1"),
        ("encoder.capsules", True, "a whole number"),
        ("encoder.capsules", 0, "of at least 1"),
        ("encoder.weight_decay", "nan", "a number of at least 0"),
        ("encoder.learning_rate", "inf", "a number above 0"),
        ("limit", float("inf"), "a whole number of at least 1, or none"),
        ("image_size", [28.9, 28.9], "HxW"),
        ("image_size", [True, True], "HxW"),
        ("image_size", "28y", "HxW"),
        ("primary.center", "maybe", "true or false"),
        ("primary.center", 1, "true or false"),
        ("encoder.softmax_over", "x", "'outputs' or 'inputs'"),
        ("encoder.coefficient_sum", -1, "a number above 0 or 'mean'"),
        ("encoder.momentum", 1.0, "below 1"),
        ("encoder.routing_iterations", 1001, "of at most 1000"),
        ("compute.precision", "mixed_float16", "'float32'"),
        ("compute.features_limit", "3 XB", "500MB"),
        ("seed", 5_000_000_000, "of at most 2147483647"),
        ("checkpoint_seconds", 0, "above 0"),
        ("split", "z", "'azimuth' or 'elevation', or none"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_given(name, value, words):
    made = capsules()
    with pytest.raises(ConfigError) as refused:
        made.set(name, value)
    text = str(refused.value)
    assert text.startswith(f"{name} must be ") and words in text and text.endswith(repr(value))
    assert made.to_dict() == capsules().to_dict() and not made.given


@pytest.mark.parametrize(
    "name, words",
    [
        ("encoder.capsulez", "Did you mean `capsules`"),
        ("capsule", "Did you mean `capsules`"),
        ("encoder.wings", "Known here are: epochs"),
        ("wings.encoder", "There is no part `wings`"),
        ("seed.x", "There is no part `seed`"),
        ("__class__.seed", "There is no part"),
        ("steps", "several parts. Give one of autoencoder="),
        ("temperature", "Give one of encoder={'agreement_scale': ...}, decoder={'agreement_scale'"),
        ("encoder", "`encoder` is a part"),
    ],
)
def test_an_unknown_name_is_refused_with_those_that_exist(name, words):
    with pytest.raises(ConfigError) as refused:
        capsules().set(name, 1)
    assert words in str(refused.value)


def test_a_name_of_one_part_alone_needs_no_part():
    assert capsules(cd_steps=3).encoder.cd_steps == 3
    assert capsules(features_limit=1).compute.features_limit == 1
    assert capsules(encoder={"dim": 3}).encoder.dim == 3


def test_instances_share_no_part():
    capsules(cd_steps=3, microbatch=4)
    assert (capsules().encoder.cd_steps, capsules().compute.microbatch) == (1, None)


def test_too_small_images_are_refused():
    with pytest.raises(ConfigError, match="20x20.*12x12"):
        capsules().check((12, 12, 1))


@pytest.mark.parametrize(
    "preset, name, value",
    [
        ("representation", "encoder.agreement_scale", 1),
        ("representation", "decoder.agreement_scale", 2),
        ("paper", "encoder.load_balancing", 0.1),
        ("generation", "encoder.bias_rate", 2.0),
    ],
)
def test_a_setting_that_means_nothing_is_refused(preset, name, value):
    made = capsules(preset)
    made.check()
    made.set(name, value)
    with pytest.raises(ConfigError, match=f"{name} has no effect"):
        made.check()


def test_steps_mean_nothing_beside_epochs():
    made = capsules(encoder={"epochs": 3})
    made.check()
    made.set("encoder.steps", 100)
    with pytest.raises(ConfigError, match="encoder.steps has no effect"):
        made.check()


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="encoder.weight_decay must be below 5"):
        capsules(encoder={"weight_decay": 6}).check()


@pytest.mark.parametrize("model, part", [("capsnet", "capsnet"), ("matrix-capsules", "matrix")])
def test_a_data_set_brings_what_suits_it_unless_it_is_given(model, part):
    made = registry.settings(model, dataset="smallnorb:2.1.0", classes=7)
    made.suit()
    net = getattr(made, part)
    assert (net.classes, net.augmentation, made.image_size) == (7, "norb", (48, 48))
    assert made.given == {"dataset", f"{part}.classes"}
    plain = registry.settings(model, dataset="mnist")
    plain.suit()
    assert plain.to_dict() == registry.settings(model, dataset="mnist").to_dict()


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ConfigError, match="generation, representation, detail, paper"):
        capsules("soup")


def test_differences_name_the_setting_and_both_values():
    mine, theirs = capsules(), capsules()
    theirs.update({"encoder": {"capsules": 10}, "dataset": "mnist", "checkpoint_seconds": 5})
    assert mine.differences(theirs) == {
        "dataset": ("fashion_mnist", "mnist"),
        "encoder.capsules": (20, 10),
    }


def test_few_images_take_fewer_steps():
    schedule = Schedule(steps=900, batch_size=128)
    assert schedule.over(60_000) == (2, 469)
    # Whole epochs, so the numbers are near.
    for images, steps in ((30_000, 900), (10_000, 900), (5_000, 450), (1_500, 135), (50, 135)):
        assert math.prod(schedule.over(images)) == pytest.approx(steps, rel=0.15)
    experts = registry.settings("neurons").experts.schedule
    assert math.prod(experts.over(1_280)) == pytest.approx(0.4 * experts.steps, rel=0.05)
    assert Schedule(epochs=3, batch_size=128).over(1_500) == (3, 12)


def test_unreadable_toml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="missing.toml"):
        read_toml(tmp_path / "missing.toml")


# Former names. For each a model, a former value, and the present name and value.
FORMER = {
    "encoder.iterations": ("capsules", 5, "encoder.routing_iterations", 6),
    "encoder.temperature": ("capsules", 0.25, "encoder.agreement_scale", 0.25),
    "encoder.normalize": ("capsules", "inputs", "encoder.softmax_over", "inputs"),
    "encoder.scale": ("capsules", "mean", "encoder.coefficient_sum", "mean"),
    "encoder.l2": ("capsules", 0.5, "encoder.weight_decay", 0.5),
    "encoder.start": ("capsules", "random", "encoder.initializer", "random"),
    "encoder.frames": ("capsules", False, "encoder.whitening", False),
    "encoder.chain_steps": ("capsules", 3, "encoder.cd_steps", 3),
    "encoder.balance": ("capsules", 0.5, "encoder.load_balancing", 0.5),
    "encoder.implementation": ("capsules", "plain", "compute.implementation", "reference"),
    "autoencoder.precision": ("capsules", "float32", "compute.precision", "float32"),
    "features.limit": ("capsules", 20.0, "compute.features_limit", 20.0),
    "decoder.final_rate": ("capsules", 0.25, "decoder.min_learning_rate_fraction", 0.25),
    "experts.iterations": ("neurons", 0, "experts.routing_iterations", 1),
    "experts.remembered": ("neurons", 8, "experts.posterior_states", 8),
    "experts.passes": ("neurons", 3, "experts.cd_steps", 3),
    "rbm.gibbs_steps": ("rbm", 3, "rbm.cd_steps", 3),
    "rbm.chains": ("rbm", 7, "rbm.persistent_chains", 7),
    "capsnet.iterations": ("capsnet", 5, "capsnet.routing_iterations", 5),
    "capsnet.microbatch": ("capsnet", 4, "compute.microbatch", 4),
    "matrix.inner_iterations": ("matrix-capsules", 1, "matrix.inner_routing_iterations", 1),
    "matrix.implementation": ("matrix-capsules", "streamed", "compute.implementation", "fused"),
}


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_sets_the_present_one(former, tmp_path):
    model, value, name, present = FORMER[former]
    made = registry.settings(model)
    assert value_of(made, name) != present
    text = str(value).lower()
    path = tmp_path / "settings.toml"
    part, _, key = former.partition(".")
    path.write_text(f"[{part}]\n{key} = {text if not isinstance(value, str) else repr(value)}\n")
    for change in (
        lambda: made.set(former, value),
        lambda: made.set(former, text),
        lambda: made.update(
            wanted_settings(model, None, path, (), {}).model_dump(exclude={"compute"})
        ),
        lambda: wanted_settings(model, None, None, (f"{former}={text}",), {}),
    ):
        with pytest.warns(FutureWarning, match=f"{former} is deprecated: use {name}="):
            change()
    assert value_of(made, name) == present
    # As a run of an earlier version is read: without a word.
    saved = registry.settings(model).to_dict()
    saved.setdefault(part, {})[key] = value
    now, _, key = name.partition(".")
    saved[now].pop(key, None) if f"{now}.{key}" != former else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = registry.settings_class(model).from_dict(saved)
    assert value_of(read, name) == present


def test_every_former_name_leads_to_a_setting():
    for model in NAMES:
        made = registry.settings(model)
        for part, rows in former_names.SETTINGS.items():
            for key in rows if part in made.parts else ():
                new, _ = former_names.current_setting(f"{part}.{key}", None)
                assert new in former_names.REMOVED or hasattr(made, new.partition(".")[0])
                if new not in former_names.REMOVED:
                    value_of(made, new)


def test_both_names_in_one_file_contradict_each_other():
    twice = "cd_steps is given by two names"
    with pytest.warns(FutureWarning), pytest.raises(ConfigError, match=twice):
        registry.settings("rbm", rbm={"gibbs_steps": 1, "cd_steps": 2})


def test_former_options_are_hidden_and_still_work():
    options = _short_options(registry.settings("rbm"))
    (former,) = (option for option in options if "--gibbs-steps" in option.opts)
    assert former.hidden
    with pytest.warns(FutureWarning, match="rbm.gibbs_steps is deprecated"):
        assert wanted_settings("rbm", None, None, (), {former.name: 4}).rbm.cd_steps == 4
    assert {"--encoder-epochs", "--epochs"} <= {
        name for option in _part_options(capsules()) for name in option.opts
    }


def test_the_command_says_it_in_one_line():
    command = "from keras_capsule_poe.cli.main import main; main()"
    options = ("--model", "rbm", "--set", "rbm.gibbs_steps=2", "--set", "rbm.wings=1")
    done = subprocess.run(
        [sys.executable, "-c", command, "train", *options], capture_output=True, text=True
    )
    told, error = done.stderr.splitlines()
    assert told == "Warning: rbm.gibbs_steps is deprecated: use rbm.cd_steps=2"
    assert "rbm.wings" in error and done.returncode == 2


def test_a_removed_setting_is_passed_over_where_its_value_is_what_the_code_has():
    kept = capsules().to_dict()
    kept["autoencoder"] |= {"least_epoch": 1.0, "negative_slope": 0.2}
    read = capsules().from_dict(kept)
    assert read.to_dict() == capsules().to_dict() and not read.lost
    kept["autoencoder"]["negative_slope"] = 0.3
    read = capsules().from_dict(kept)
    assert read.lost == {"autoencoder.negative_slope": 0.3}
    assert capsules().differences(read) == {"autoencoder.negative_slope": (None, 0.3)}
    with pytest.raises(ConfigError, match="filters"):
        # A value of any kind, as a damaged file may have it.
        capsules().from_dict({**kept, "autoencoder": {"filters": [8]}})


def test_a_folder_of_an_earlier_version_is_of_the_same_settings(tmp_path):
    old = {
        **{"model": "capsules", "recipe": "paper", "dataset": "digits", "limit": 96},
        "held_out": None,
        "autoencoder": {"filters": 8, "final_rate": 0.02, "precision": "float32"},
        "encoder": {"iterations": 2, "normalize": "outputs", "scale": 5.0, "capsules": 7},
        "decoder": {"iterations": 0, "scale": "mean", "l2": 1e-4},
        "features": {"limit": 100.0},
    }
    write_record(tmp_path / RUN_FILE, {"config": old, "fingerprint": None, "run": "a run"})
    kept = RunFolder(tmp_path).readable()["config"]
    wanted = capsules("paper", dataset="digits", limit=96)
    changed = {
        "autoencoder.filters": 8,
        "encoder.routing_iterations": 3,
        "encoder.softmax_over": "outputs",
        "encoder.coefficient_sum": 5.0,
        "encoder.capsules": 7,
        "decoder.routing_iterations": 1,
        "decoder.weight_decay": 1e-4,
    }
    assert set(wanted.differences(capsules().from_dict(kept))) == set(changed)
    wanted.update(changed)
    begun = SimpleNamespace(settings=wanted, folder=RunFolder(tmp_path), stages=[*wanted.stages])
    acquire._adopt(begun, kept, begun.stages)
    assert wanted.compute.precision == "float32"
    wanted.set("decoder.batch_size", 3)
    with pytest.raises(RunFailed, match=r"other settings \(decoder.batch_size: 64 -> 3\)"):
        acquire._adopt(begun, kept, begun.stages)


@pytest.mark.parametrize(
    "model, name, near",
    [
        ("capsules", "capsule", "capsules"),
        ("capsules", "encoder.capsule", "capsules"),
        ("capsules", "encodr.capsules", "encoder"),
        ("neurons", "Capsule", "capsules"),
        ("rbm", "hiden", "hidden"),
        ("capsnet", "routing_iteration", "routing_iterations"),
        ("matrix-capsules", "epoch", "epochs"),
    ],
)
def test_a_mistyped_setting_is_met_with_the_nearest(model, name, near):
    with pytest.raises(ConfigError, match=f"Did you mean `{near}`?") as error:
        registry.settings(model).set(name, 3)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=f"Did you mean `{near}`?"):
        wanted_settings(model, None, None, [f"{name}=3"], {"train_dir": None})


def test_a_mistyped_preset_or_model_is_met_with_the_nearest():
    with pytest.raises(ConfigError, match="Received: preset='detial'. Did you mean `detail`"):
        capsules("detial")
    with pytest.raises(ConfigError, match="There is no model 'capsule'. Did you mean `capsules`"):
        registry.settings("capsule")


@pytest.mark.parametrize("name", ["model", "recipe", "stage", "store", "model_dir"])
def test_an_option_is_no_setting(name):
    """Rejects the advice to write `codes` in place of `model`."""
    with warnings.catch_warnings(), pytest.raises(ConfigError, match="an option of") as refused:
        warnings.simplefilter("ignore", FutureWarning)
        capsules(**{name: "rbm"})
    assert refused.value.hint == f"option:{'preset' if name == 'recipe' else name}"


@pytest.mark.parametrize("value", [5, None, [1], "dim"])
def test_a_part_is_no_value(value):
    with pytest.raises(ConfigError, match="`encoder` is a part.*Received: "):
        capsules(encoder=value)


def test_long_primary_capsules_are_refused():
    """The rule of the decoder takes z for z/|z|^2."""
    with pytest.raises(ConfigError, match="primary.target_length must be at most 1.*Received: 3"):
        capsules(primary={"target_length": 3}).check()


def test_a_file_names_one_preset(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text('recipe = "detail"\npreset = "paper"\n')
    with pytest.raises(ConfigError, match="two.toml: recipe and preset are one setting"):
        wanted_settings("capsules", None, path, (), {})
