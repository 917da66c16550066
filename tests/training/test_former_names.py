"""Former names of settings: each still works, and says which one is used now."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest

from keras_capsule_poe import families
from keras_capsule_poe.cli.train import _configuration
from keras_capsule_poe.cli.train_options import _section_options
from keras_capsule_poe.errors import ConfigError, RunFailed
from keras_capsule_poe.io.records import write_record
from keras_capsule_poe.training import RunConfig, RunFolder, acquire
from keras_capsule_poe.training.folder import RUN_FILE

# For each family and former name: a former value, the current name and the current value.
RATE = ("min_learning_rate_fraction", 0.25)
FORMER = {
    "capsules": {
        "autoencoder.final_rate": (0.25, *RATE),
        "encoder.iterations": (5, "routing_iterations", 6),
        "encoder.normalize": ("inputs", "softmax_over", "inputs"),
        "encoder.scale": ("mean", "coefficient_sum", "mean"),
        "encoder.final_rate": (0.25, *RATE),
        "encoder.l2": (0.5, "weight_decay", 0.5),
        "encoder.start": ("random", "initializer", "random"),
        "encoder.activation_prior": (0.5, "activation_prior_weight", 0.5),
        "encoder.chain_steps": (3, "cd_steps", 3),
        "encoder.balance": (0.5, "load_balancing", 0.5),
        "encoder.frames": (False, "whitening", False),
        "encoder.visited_components": (3, "posterior_components", 3),
        "decoder.iterations": (5, "routing_iterations", 6),
        "decoder.normalize": ("outputs", "softmax_over", "outputs"),
        "decoder.scale": (2.5, "coefficient_sum", 2.5),
        "decoder.final_rate": (0.25, *RATE),
        "decoder.l2": (0.5, "weight_decay", 0.5),
    },
    "neurons": {
        "autoencoder.final_rate": (0.25, *RATE),
        "experts.iterations": (0, "routing_iterations", 1),
        "experts.normalize": ("inputs", "softmax_over", "inputs"),
        "experts.activation_prior": (0.5, "activation_prior_weight", 0.5),
        "experts.scale": (2.5, "coefficient_sum", 2.5),
        "experts.balance": (0.5, "load_balancing", 0.5),
        "experts.passes": (3, "cd_steps", 3),
        "experts.final_rate": (0.25, *RATE),
        "experts.start": ("noise", "initializer", "noise"),
        "experts.hidden_start": (-1.5, "initial_hidden_bias", -1.5),
        "experts.remembered": (8, "posterior_states", 8),
        "top.passes": (3, "cd_steps", 3),
        "top.final_rate": (0.25, *RATE),
    },
    "rbm": {
        "autoencoder.final_rate": (0.25, *RATE),
        "rbm.gibbs_steps": (3, "cd_steps", 3),
        "rbm.chains_start": ("noise", "chains_initializer", "noise"),
        "rbm.final_rate": (0.25, *RATE),
    },
    "capsnet": {
        "capsnet.iterations": (5, "routing_iterations", 5),
        "capsnet.loss": ("official", "loss_reduction", "official"),
        "capsnet.initial": ("he", "initializer", "he"),
        "capsnet.fall": ("cosine", "learning_rate_schedule", "cosine"),
        "capsnet.decay": (0.5, "decay_rate", 0.5),
        "capsnet.least_rate": (0.125, "min_learning_rate", 0.125),
    },
    "matrix-capsules": {
        "matrix.iterations": (5, "routing_iterations", 5),
        "matrix.inner_iterations": (1, "inner_routing_iterations", 1),
        "matrix.spread_scaling": ("official", "loss_reduction", "official"),
        "matrix.rise": ("official", "margin_schedule", "official"),
        "matrix.initial": ("glorot", "initializer", "glorot"),
        "matrix.fall": ("exponential", "learning_rate_schedule", "exponential"),
        "matrix.decay": (0.5, "decay_rate", 0.5),
        "matrix.least_rate": (0.125, "min_learning_rate", 0.125),
    },
}
CASES = [
    pytest.param(family, name, *values, id=f"{family}-{name}")
    for family, names in FORMER.items()
    for name, values in names.items()
]


def of(config, name, key):
    return getattr(config[name.partition(".")[0]], key)


@pytest.mark.parametrize("family", families.names())
def test_no_former_name_is_left_out_here(family):
    found = {
        f"{section}.{former}": new
        for section, kind in families.get(family).sections.items()
        for former, (new, _) in getattr(kind, "ALIASES", {}).items()
    }
    assert found == {name: new for name, (_, new, _) in FORMER[family].items()}


@pytest.mark.parametrize("family, name, value, key, current", CASES)
def test_a_former_name_sets_the_current_one(family, name, value, key, current):
    config = RunConfig(families.get(family))
    assert of(config, name, key) != current
    new = f"{name.partition('.')[0]}.{key}"
    for given in (value, str(value).lower()):
        with pytest.warns(FutureWarning) as told:
            config.set(name, given)
        shown = str(current).lower() if isinstance(current, bool) else current
        assert [str(w.message) for w in told] == [f"{name} is deprecated: use {new}={shown}"]
        assert of(config, name, key) == current
    assert config.given == {new}


@pytest.mark.parametrize("family, name, value, key, current", CASES)
def test_a_folder_with_a_former_name_is_read_without_a_word(family, name, value, key, current):
    """As resuming reads it: the same configuration as with the current name."""
    family, (section, _, former) = families.get(family), name.partition(".")
    config = RunConfig(family)
    config.set(f"{section}.{key}", current)
    saved = config.to_dict()
    assert former not in saved[section]
    saved[section] = {former if k == key else k: v for k, v in saved[section].items()}
    saved[section][former] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = RunConfig.from_dict(family, saved)
    assert not config.differences(kept) and former in saved[section]


@pytest.mark.parametrize("family, name, value, key, current", CASES)
def test_files_options_and_flags_take_former_names(tmp_path, family, name, value, key, current):
    family, (section, _, former) = families.get(family), name.partition(".")
    path = tmp_path / "settings.toml"
    text = str(value).lower()
    quoted = f"'{text}'" if isinstance(value, str) else text
    path.write_text(f"[{section}]\n{former} = {quoted}\n")
    flag = {}
    for option in _section_options(family, None):
        if option.name == f"{section}__{former}":
            assert option.hidden and f"--{former.replace('_', '-')}" in option.opts
            flag = {option.name: text}
    assert bool(flag) == (f"{section}.{key}" in family.options.values())
    for given in ((path, (), {}), (None, (f"{name}={text}",), {}), (None, (), flag)):
        if any(given):
            with pytest.warns(FutureWarning, match=f"{name} is deprecated"):
                config = _configuration(family, None, *given)
            assert of(config, name, key) == current


def test_both_names_in_one_file_contradict_each_other():
    config = RunConfig(families.get("rbm"))
    with pytest.raises(ConfigError, match="gibbs_steps and rbm.cd_steps are two names"):
        config.update({"rbm": {"gibbs_steps": 1, "cd_steps": 2}})


def test_the_command_says_it_in_one_line():
    command = "from keras_capsule_poe.cli.main import main; main()"
    options = ("--model", "rbm", "--set", "rbm.gibbs_steps=2", "--set", "rbm.wings=1")
    done = subprocess.run(
        [sys.executable, "-c", command, "train", *options], capture_output=True, text=True
    )
    told, error = done.stderr.splitlines()
    assert told == "Warning: rbm.gibbs_steps is deprecated: use rbm.cd_steps=2"
    assert "rbm.wings" in error and done.returncode == 2


# What earlier versions wrote in run.json, in part: what is left out has its default.
SAVED = {
    "capsules": {
        "recipe": "paper",
        "autoencoder": {"filters": 8, "final_rate": 0.02, "least_epoch": 1.0},
        "encoder": {
            "iterations": 2, "normalize": "outputs", "scale": 5.0, "l2": 1e-3, "final_rate": 0.2,
            "start": "clusters", "activation_prior": 2.0, "chain_steps": 3, "balance": 0.03,
            "frames": True, "visited_components": 4, "capsules": 7,
        },
        "decoder": {"iterations": 0, "normalize": "inputs", "scale": "mean", "l2": 1e-4},
    },
    "neurons": {
        "recipe": "latent",
        "experts": {
            "iterations": 2, "normalize": "outputs", "scale": 1.0, "balance": 0.0, "passes": 2,
            "final_rate": 0.1, "start": "noise", "hidden_start": -4.0, "remembered": 256,
        },
        "top": {"capsules": 3, "passes": 4, "final_rate": 0.05},
    },
    "rbm": {
        "recipe": "small",
        "rbm": {"gibbs_steps": 2, "chains_start": "noise", "final_rate": 0.01, "hidden": 16},
    },
    "capsnet": {
        "recipe": "official",
        "capsnet": {
            "iterations": 3, "loss": "official", "initial": "official", "fall": "exponential",
            "decay": 0.96, "least_rate": 1e-6,
        },
    },
    "matrix-capsules": {
        "recipe": "small",
        "matrix": {
            "iterations": 2, "inner_iterations": None, "spread_scaling": "sum", "rise": "linear",
            "initial": "he", "fall": "cosine", "decay": 0.96, "least_rate": 1e-6, "loss": "spread",
        },
    },
}  # fmt: skip
# The settings of those that are not the recipe's.
CHANGED = {
    "capsules": {
        "autoencoder.filters": 8,
        "encoder.routing_iterations": 3,
        "encoder.softmax_over": "outputs",
        "encoder.coefficient_sum": 5.0,
        "encoder.weight_decay": 1e-3,
        "encoder.min_learning_rate_fraction": 0.2,
        "encoder.initializer": "clusters",
        "encoder.activation_prior_weight": 2.0,
        "encoder.cd_steps": 3,
        "encoder.load_balancing": 0.03,
        "encoder.whitening": True,
        "encoder.posterior_components": 4,
        "encoder.capsules": 7,
        "decoder.routing_iterations": 1,
        "decoder.weight_decay": 1e-4,
    },
    "neurons": {
        "experts.routing_iterations": 3,
        "experts.cd_steps": 2,
        "experts.initializer": "noise",
        "top.capsules": 3,
        "top.cd_steps": 4,
    },
    "rbm": {"rbm.cd_steps": 2, "rbm.chains_initializer": "noise"},
    "capsnet": {},
    "matrix-capsules": {},
}


def began(family, folder, saved):
    """A run whose first trained stage has begun, as an earlier version left it."""
    config = RunConfig(family, saved["recipe"], dataset="digits", limit=96)
    values = config.to_dict()
    for section in family.sections:
        if section in saved:
            values[section] = saved[section]
    run = {"config": values, "fingerprint": None, "run": "a run"}
    write_record(folder / RUN_FILE, run)


@pytest.mark.parametrize("family", families.names())
def test_a_folder_of_an_earlier_version_is_of_the_same_settings(tmp_path, family):
    family, saved = families.get(family), SAVED[family]
    began(family, tmp_path, saved)
    kept = RunFolder(tmp_path).readable()["config"]
    read = RunConfig.from_dict(family, kept)
    wanted = RunConfig(family, saved["recipe"], dataset="digits", limit=96)
    assert set(wanted.differences(read)) == set(CHANGED[family.name])
    wanted.update(CHANGED[family.name])
    assert not wanted.differences(read)
    read.check((28, 28, 1))
    run = SimpleNamespace(config=wanted, folder=RunFolder(tmp_path))
    acquire._refuse_differences(run, kept, family.stages)
    wanted.set(f"{family.stages[-2].section}.batch_size", 3)
    with pytest.raises(RunFailed, match=r"other settings \(\w+\.batch_size: \d+ -> 3\)"):
        acquire._refuse_differences(run, kept, family.stages)
