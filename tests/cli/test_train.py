"""`capspoe train`: settings from options and files, refusals, and what a training leaves."""

import json
import os
import re
import subprocess

import numpy as np

from keras_capsule_poe import registry
from keras_capsule_poe.cli.train import folder_name
from keras_capsule_poe.io.records import remove_record

DIGITS = ("train", "--dataset", "digits")


def test_training_leaves_what_it_promises(tiny_model):
    for name in (
        "run.json", "model.keras", "samples-prior.png", "samples-posterior.png",
        "reconstructions.png", "1/saved_model.pb", "1/model_card.json",
    ):  # fmt: skip
        assert (tiny_model / name).is_file(), name
    assert any((tiny_model / "pictures").glob("decoder-*.png"))
    history = json.loads((tiny_model / "encoder" / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history] == [1, 2]
    for name in (
        "loss", "free_energy", "val_free_energy", "free_energy_gap", "probability_mean",
        "probability_spread", "orientation_concentration", "update_size",
    ):  # fmt: skip
        assert np.isfinite(history[-1][name]), name
    left = {path.name for path in tiny_model.rglob(".*")}
    assert left == {".lock", ".run.json", ".done.json"}, "temporary files were left behind"
    assert not list(tiny_model.rglob("checkpoints"))


def test_same_command_again_skips_finished_stages(asked, tiny_model, tiny):
    before = (tiny_model / "encoder" / "model.keras").stat().st_mtime_ns
    shown = asked(*DIGITS, "--model-dir", tiny_model, *tiny)
    assert shown.count("done before") == 5
    # It ends with what to do next, and begins with what is trained.
    assert shown.splitlines()[-3] == f"Next: capspoe explore {tiny_model}"
    assert shown.startswith(f"{tiny_model}: model capsules, preset ")
    assert (tiny_model / "encoder" / "model.keras").stat().st_mtime_ns == before


BAD = [
    (["--epochs", "0"], ["autoencoder", "epochs", "0"]),
    (["--limit", "-3"], ["limit", "-3"]),
    (["--batch-size", "many"], ["--batch-size", "many"]),
    (["--image-size", "big"], ["image_size", "HxW", "big"]),
    (["--image-size", "8"], ["20x20", "8x8", "--image-size"]),
    (["--set", "encoder.capsules=0"], ["encoder", "capsules", "0"]),
    (["--set", "encoder.wings=2"], ["encoder.wings", "capsules"]),
    (["--set", "nonsense"], ["--set", "nonsense"]),
    (["--set", "encoder.capsules=two"], ["encoder.capsules", "two"]),
    (["--set", "encoder.softmax_over=both"], ["encoder", "softmax_over", "both"]),
    (["--column", "sound"], ["column", "sound"]),
    (["--autoencoder-learning-rate", "-1"], ["autoencoder", "learning_rate", "-1"]),
    (["--autoencoder-learning-rate", "1e300"], ["autoencoder", "learning_rate", "1e+300"]),
    (["--set", "decoder.weight_decay=1e30"], ["decoder.weight_decay must be below", "1e+30"]),
    (
        ["--set", "encoder.weight_decay=5"],
        ["encoder.weight_decay must be below 5, one by the learning rate", "5.0"],
    ),
    (
        ["--set", "encoder.routing_iterations=1001"],
        ["encoder.routing_iterations", "at most 1000", "1001"],
    ),
    (["--set", "encoder.cd_steps=1001"], ["encoder.cd_steps", "at most 1000"]),
    (
        ["--recipe", "paper", "--set", "encoder.load_balancing=0.1"],
        ["encoder.load_balancing has no effect here", "encoder.softmax_over"],
    ),
    (["--held-out", "0", "--dry-run"], ["held_out must be a whole number of at least 1"]),
]


def test_bad_options_exit_2_before_anything_is_trained(asked, tmp_path):
    folder = tmp_path / "model"
    for arguments, words in BAD:
        shown = asked(*DIGITS, "--model-dir", folder, *arguments, code=2, last=words)
        assert "fewer" not in shown and not (folder / "autoencoder").exists()


def test_unknown_data_sets_name_near_ones_and_cost_nothing(asked, copied, files, tiny, tmp_path):
    words = ("fashon_mnist", "fashion_mnist")
    asked("train", "--dataset", words[0], "--model-dir", tmp_path / "m", code=2, last=words)
    before = files(copied)
    fresh = ("--model-dir", copied, "--fresh", *tiny)
    asked("train", "--dataset", "digtis", *fresh, code=2, last=("digtis", "digits"))
    assert files(copied) == before


def test_other_configuration_is_refused_with_the_difference(asked, tiny_model, tiny):
    before = (tiny_model / "run.json").read_bytes()
    command = (*DIGITS, "--model-dir", tiny_model, *tiny, "--set", "encoder.capsules=4")
    # The autoencoder stays: an advice to start all of it over would cost minutes.
    asked(*command, code=1, last=("encoder.capsules: 3 -> 4", "--stage encoder --fresh"))
    assert (tiny_model / "run.json").read_bytes() == before
    assert (tiny_model / "encoder" / "model.keras").exists()


def test_folders_that_cannot_be_used_are_refused(asked, tmp_path):
    mine, file = tmp_path / "mine", tmp_path / "file"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    asked(*DIGITS, "--model-dir", mine, "--fresh", code=1, last=(str(mine), "--model-dir"))
    assert (mine / "thesis.txt").read_text() == "mine"
    file.write_text("x")
    words = ("--model-dir", f"{file}' is a file")
    asked(*DIGITS, "--model-dir", file, code=2, last=words)
    assert file.read_text() == "x"
    # Images that there are not: reading them would fail first.
    command = ("train", "--dataset", tmp_path / "none.npz", "--model-dir", file / "models" / "m")
    asked(*command, code=1, last=f"Cannot write in the folder {file}")


def test_damaged_checkpoint_is_named(asked, copied, tiny):
    remove_record(copied / "decoder" / "done.json")
    checkpoint = copied / "decoder" / "checkpoints" / "step-000000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    words = ("step-000000002", "--stage decoder --fresh")
    asked(*DIGITS, "--model-dir", copied, *tiny, code=1, last=words)


def test_another_backend_is_refused_before_anything_is_written(program, tmp_path):
    done = subprocess.run(
        [*program, *DIGITS, "--model-dir", tmp_path / "m"],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "Received: KERAS_BACKEND=jax" in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "m").exists()


def test_dry_run_trains_nothing(asked, tmp_path):
    options = ("--limit", 100, "--held-out", 10, "--dry-run")
    shown = asked(*DIGITS, "--model-dir", tmp_path / "none", *options)
    assert "90 training, 10 held-out and 297 test images" in shown
    assert "576 x 8" in shown and "20 x 16" in shown and "1,474,560 parameters" in shown
    assert not (tmp_path / "none").exists()


def test_a_dry_run_has_no_checkpoints_to_speak_of(program, tmp_path):
    words = ("--dry-run", "--model", "rbm", "--model-dir", tmp_path / "m")
    reader, writer = os.pipe()
    os.close(reader)
    command = [*program, *DIGITS, *words]
    found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert found.returncode == 1
    assert "checkpoint" not in found.stderr and "Traceback" not in found.stderr


def test_help_shows_the_defaults_of_the_recipe_asked_for(asked):
    for recipe, steps, rate in (("generation", 900, "0.2"), ("representation", 450, "0.05")):
        shown = " ".join(asked("train", "--recipe", recipe, "--help").split())
        assert f"Encoder: epochs. [default: enough for {steps} steps]" in shown
        assert f"Encoder: initial learning rate. [default: {rate}]" in shown


def test_composed_data_sets_have_their_own_size(asked, tiny, tmp_path):
    pairs = ("train", "--dataset", "digits_multi", "--model-dir", tmp_path / "m", "--dry-run")
    # 96 pairs, of which four are held out.
    assert "2 epochs, 4 steps" in asked(*pairs, *tiny)
    assert not (tmp_path / "m").exists()
    shown = asked(*pairs, "--image-size", "20", code=2)
    assert "composed of another. Received: image_size=" in shown and "Omit --image-size." in shown


def test_folders_are_named_by_the_whole_name_of_a_data_set():
    for dataset, name in (
        ("multimnist/shift=6", "multimnist-shift=6"),
        ("mnist_corrupted/fog", "mnist_corrupted-fog"),
        ("mnist", "mnist"),
        ("some/where/photos.npz", "photos"),
    ):
        assert folder_name(registry.settings("capsules", dataset=dataset)) == name


def epochs(shown):
    """How often each stage of a plan goes through the images; its minutes are measured."""
    found = re.findall(r"^  (\w+) +(\d+) epochs", shown, re.MULTILINE)
    assert found, shown
    return found


def test_flags_win_over_a_file(asked, tmp_path):
    path = tmp_path / "good.toml"
    path.write_text("dataset = 'digits'\n[encoder]\ncapsules = 7\n[decoder]\nepochs = 3\n")
    shown = asked("train", "--config", path, "--decoder-epochs", 5, "--dry-run")
    assert "7 x 16" in shown and "decoder            5 epochs" in shown


def test_a_file_names_its_model_and_its_recipe(asked, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("dataset = 'digits'\nrecipe = 'paper'\n")
    plan = (*DIGITS, "--dry-run")
    first, paper = epochs(asked(*plan)), epochs(asked(*plan, "--recipe", "paper"))
    assert first != paper
    for more in ((), ("--recipe", "paper"), ("--preset", "paper"), ("--preset=paper",)):
        assert epochs(asked("train", "--config", path, *more, "--dry-run")) == paper
    path.write_text("dataset = 'digits'\npreset = 'paper'\n")
    assert epochs(asked("train", "--config", path, "--dry-run")) == paper
    path.write_text("model = 'rbm'\ndataset = 'digits'\n[rbm]\nhidden = 7\n")
    shown = asked("train", "--config", path, "--rbm-epochs", 2, "--dry-run")
    assert "7" in shown and "rbm" in shown


def test_files_that_mean_nothing_or_contradict_a_flag(asked, tmp_path):
    """Rejects a file for another recipe whose sections are set beside the first one's."""
    path = tmp_path / "settings.toml"
    unreadable = f"Cannot read the configuration {path}"
    for text, words in (
        ("[encoder\ncapsules = 7\n", "settings.toml"),
        ("seed = 1" + 5000 * "0", unreadable),
        ("a = " + 3000 * "[", unreadable),
        ("seed = \xff", unreadable),
        ('model = "capsnett"', "model must be one of capsules, capsnet, matrix-capsules"),
        ("model = 3", "Received: 3"),
        ('model = "capsnet"\nrecipe = "smal"', "recipe must be one of paper, "),
        ('recipe = ["small"]', "Received: ['small']"),
    ):
        path.write_bytes(text.encode("latin1"))
        line = asked("train", "--config", path, code=2, last=words).splitlines()[-1]
        assert "--model" not in line and "--recipe" not in line
    for name, value, wanted in (
        ("model", "rbm", "capsules"),
        ("recipe", "paper", "affine"),
        ("preset", "paper", "affine"),
    ):
        path.write_text(f"dataset = 'digits'\n{name} = {value!r}\n")
        words = f"{path} is for the {name} {value!r}. Received: --{name} {wanted}"
        asked("train", "--config", path, f"--{name}", wanted, "--dry-run", code=2, last=words)


def test_settings_come_through_a_pipe_that_ends(program, asked, tmp_path):
    found = subprocess.run(
        [*program, "train", "--config", "/dev/stdin", "--model-dir", tmp_path / "m"],
        input="\ufeffmodel = 'rbm'\n[rbm]\nhidden = -3\n",
        capture_output=True,
        text=True,
    )
    assert "rbm.hidden must be" in found.stderr and "-3" in found.stderr, found.stderr
    asked("train", "--config", "/dev/zero", code=2, last="more than 1,048,576 bytes")


def test_stores_that_cannot_be(asked, tiny, tmp_path):
    (tmp_path / "file").touch()
    np.savez(tmp_path / "a.npz", images=np.zeros((40, 28, 28), "uint8"), labels=np.arange(40) % 3)
    images = ("train", "--dataset", tmp_path / "a.npz", "--model-dir", tmp_path / "m", *tiny)
    shown = asked(*images, "--store", tmp_path / "file" / "stores", code=1)
    assert "Cannot write in the folder" in shown and shown.endswith("Choose another --store.\n")
    digits = (*DIGITS, "--model-dir", tmp_path / "m", *tiny)
    shown = asked(*digits, "--store", tmp_path / "stores", code=2)
    assert "`store` has no meaning for the data set 'digits'" in shown
    assert "Omit --store." in shown
