"""Bad input: one clear line, exit code 2 or 1, nothing lost."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from keras_capsule_poe.cli.main import COMMANDS
from keras_capsule_poe.cli.measure import own_seconds
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import remove_record


def fails(result, code, *words):
    """The command failed with `code` and one line that holds `words`."""
    assert result.exit_code == code, result.output
    last = result.output.strip().splitlines()[-1]
    for word in words:
        assert word in last, result.output


def test_help_is_quick_and_imports_no_tensorflow():
    program = (
        "import sys, click.testing, keras_capsule_poe\n"
        "from keras_capsule_poe.cli.main import main\n"
        "from keras_capsule_poe.families import names\n"
        "of_families = [['train', '--model', name, '--help'] for name in names()]\n"
        "for arguments in (['--help'], ['train', '--help'], ['sample', '--help'], *of_families):\n"
        "    assert click.testing.CliRunner().invoke(main, arguments).exit_code == 0\n"
        "from keras_capsule_poe.cli.train import _configuration\n"
        "from keras_capsule_poe.families import get\n"
        "for name in names():\n"
        "    _configuration(get(name), None, None, (), {})\n"
        "print([name for name in ('tensorflow', 'keras', 'numpy') if name in sys.modules])\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout.strip() == "[]", shown.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
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
        (["--set", "autoencoder.weight_decay=1e30"], ["`weight_decay` must be below 500", "1e+30"]),
        (
            ["--set", "encoder.weight_decay=5"],
            ["encoder", "`weight_decay` must be below 5", "weight_decay=5.0", "rate=0.2"],
        ),
        (
            ["--set", "encoder.routing_iterations=1001"],
            ["encoder", "`routing_iterations`", "at most 1000", "1001"],
        ),
        (["--set", "encoder.cd_steps=1001"], ["encoder", "`cd_steps`", "at most 1000"]),
        (["--set", "autoencoder.negative_slope=2"], ["negative_slope", "[0, 1]", "2.0"]),
    ],
)
def test_bad_options_exit_2(capspoe, tmp_path, arguments, words):
    folder = tmp_path / "model"
    result = capspoe("train", "--dataset", "digits", "--model-dir", folder, *arguments)
    fails(result, 2, *words)
    assert not (folder / "autoencoder").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_folder_is_not_the_working_folder(capspoe, tmp_path, monkeypatch, command):
    # As from `--model-dir "$MODEL"` where MODEL is not set.
    monkeypatch.chdir(tmp_path)
    # `compare` takes folders as arguments.
    option = [] if command == "compare" else ["--model-dir"]
    fails(capspoe(command, *option, ""), 2, *(option or ["MODEL_DIR"]), "must not be empty", "''")
    assert not list(tmp_path.iterdir())


def test_no_store_is_not_the_working_folder(capspoe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("train", "--dataset", "mnist", "--model-dir", "m", "--store", "")
    fails(capspoe(*arguments), 2, "--store", "must not be empty", "''")
    assert not list(tmp_path.iterdir())


def test_unknown_data_set_names_near_ones(capspoe, tmp_path):
    result = capspoe("train", "--dataset", "fashon_mnist", "--model-dir", tmp_path / "m")
    fails(result, 2, "fashon_mnist", "fashion_mnist")


def test_other_configuration_is_refused_with_the_difference(capspoe, tiny_model, tiny):
    before = json.loads((tiny_model / "run.json").read_text())
    arguments = ("train", "--dataset", "digits", "--model-dir", tiny_model, *tiny)
    result = capspoe(*arguments, "--set", "encoder.capsules=4")
    # The autoencoder stays: an advice to start all of it over would cost minutes.
    fails(result, 1, "encoder.capsules: 3 -> 4", "--stage encoder --fresh")
    assert json.loads((tiny_model / "run.json").read_text()) == before
    assert (tiny_model / "encoder" / "model.keras").exists()


def test_folder_with_foreign_files_is_refused(capspoe, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    result = capspoe("train", "--dataset", "digits", "--model-dir", tmp_path, "--fresh")
    fails(result, 1, str(tmp_path), "--model-dir")
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_model_dir_that_is_a_file(capspoe, tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    result = capspoe("train", "--dataset", "digits", "--model-dir", path)
    fails(result, 2, "--model-dir", f"{path}' is a file")
    assert path.read_text() == "x"


def test_damaged_checkpoint_is_named(capspoe, tiny_model, tiny, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    remove_record(folder / "decoder" / "done.json")
    checkpoint = folder / "decoder" / "checkpoints" / "step-000000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    result = capspoe("train", "--dataset", "digits", "--model-dir", folder, *tiny)
    fails(result, 1, "step-000000002", "--stage decoder --fresh")


def test_damaged_model_is_named(capspoe, tiny_model, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    (folder / "model.keras").write_bytes((tiny_model / "model.keras").read_bytes()[:1000])
    result = capspoe("sample", "--model-dir", folder, "--out", tmp_path / "a.png")
    fails(result, 1, "model.keras", "--stage export --fresh")
    assert not (tmp_path / "a.png").exists()


def test_commands_without_a_model_say_how_to_train(capspoe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(capspoe("sample"), 1, "capspoe train")
    fails(capspoe("info", "--model-dir", "nowhere"), 1, "nowhere")


def test_sample_refuses_bad_outputs(capspoe, tiny_model, tmp_path):
    fails(capspoe("sample", "--model-dir", tiny_model, "--out", "grid.doc"), 2, ".png", "grid.doc")
    blocked = tmp_path / "file"
    blocked.write_text("x")
    result = capspoe("sample", "--model-dir", tiny_model, "--out", blocked / "grid.png")
    fails(result, 2, f"{blocked} is not a folder", "grid.png")


def test_traverse_refuses_what_is_not_there(capspoe, tiny_model):
    fails(capspoe("traverse", "--model-dir", tiny_model, "--capsule", 3), 2, "3 capsules")
    fails(capspoe("traverse", "--model-dir", tiny_model, "--image", 10**6), 2, "297")


def test_only_classifiers_pull_things_apart(capspoe, tiny_model):
    fails(capspoe("segment", "--model-dir", tiny_model), 1, "names and decodes no images")


def test_a_folder_that_cannot_be_made_is_told_of_before_images_are_read(capspoe, tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "models" / "m"
    # Images that there are not: reading them would fail first.
    result = capspoe("train", "--dataset", tmp_path / "none.npz", "--model-dir", folder)
    fails(result, 1, f"Cannot write in the folder {tmp_path / 'file'}")


def test_interrupt_exits_130_and_says_how_to_go_on(capspoe, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_capsule_poe.training.run.train", interrupted)
    monkeypatch.setattr("keras_capsule_poe.training.train", interrupted)
    result = capspoe("train", "--dataset", "digits", "--model-dir", tmp_path / "m")
    fails(result, 130, "same command")


def test_interrupted_sampling_promises_no_checkpoint(capspoe, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_capsule_poe.cli.show.find_model", interrupted)
    result = capspoe("sample")
    assert (result.exit_code, result.output) == (130, "Interrupted.\n")


def test_unforeseen_errors_take_one_line_and_debug_shows_more(capspoe, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("keras_capsule_poe.training.train", broken)
    arguments = ("train", "--dataset", "digits", "--model-dir", tmp_path / "m")
    fails(capspoe(*arguments), 1, "RuntimeError: first second", "--debug")
    assert isinstance(capspoe(*arguments, "--debug").exception, RuntimeError)


@pytest.mark.parametrize(
    "command", [("info",), ("sample", "--out", "a.png"), ("reconstruct", "--out", "a.png")]
)
@pytest.mark.parametrize("key, value", [(None, None), ("model", ["a"]), ("recipe", {})])
def test_a_run_json_of_something_else_is_no_model(
    capspoe, tiny_model, tmp_path, monkeypatch, command, key, value
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    saved = json.loads((folder / "run.json").read_text())
    del saved["digest"]
    config = {**saved["config"], key: value} if key else {}
    (folder / "run.json").write_text(json.dumps({**saved, "config": config}))
    # The hidden copy still describes it.
    assert capspoe(*command, "--model-dir", folder).exit_code == 0
    (folder / ".run.json").unlink()
    result = capspoe(*command, "--model-dir", folder)
    fails(result, 1, "run.json", "it holds something else")


def test_a_stage_that_is_gone_is_named_where_its_time_is_asked_for(tiny_model, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    remove_record(folder / "decoder" / "done.json")
    with pytest.raises(RunFailed, match="decoder contains no finished stage") as failed:
        own_seconds(folder)
    assert failed.value.hint == "stage_fresh:decoder"


def test_a_model_of_an_older_version_is_named(capspoe, tiny_model, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    saved = json.loads((folder / "run.json").read_text())
    del saved["config"]["model"], saved["digest"]
    (folder / "run.json").write_text(json.dumps(saved))
    result = capspoe("sample", "--model-dir", folder, "--out", tmp_path / "a.png")
    fails(result, 1, "older version", "SavedModel still works")


def test_fresh_with_a_mistyped_word_costs_nothing(capspoe, tiny_model, tiny, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = capspoe("train", "--dataset", "digtis", "--model-dir", folder, "--fresh", *tiny)
    fails(result, 2, "digtis", "digits")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_setting_that_means_nothing_is_refused(capspoe, tmp_path):
    train = ("train", "--dataset", "digits", "--model-dir", tmp_path / "m")
    result = capspoe(*train, "--recipe", "paper", "--set", "encoder.load_balancing=0.1")
    fails(result, 2, "encoder.load_balancing has no effect here", "encoder.softmax_over")
    assert not (tmp_path / "m").exists()


def test_another_backend_is_refused_before_anything_is_written(tmp_path):
    program = "from keras_capsule_poe.cli.main import main; main()"
    command = [sys.executable, "-c", program, "train", "--dataset", "digits"]
    done = subprocess.run(
        [*command, "--model-dir", tmp_path / "m"],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "Received: KERAS_BACKEND=jax" in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "m").exists()


def test_a_run_that_is_not_finished_says_how_far_it_is(capspoe, tiny_model, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    (folder / "model.keras").unlink()
    remove_record(folder / "decoder" / "done.json")
    # What other programs leave is no checkpoint.
    for name in ("step-000000003", "step-abc", "step-\u00b2"):
        (folder / "decoder" / "checkpoints" / name).mkdir(parents=True)
    # Its hidden copy stands in for it.
    (folder / "run.json").unlink()
    shown = capspoe("info", "--model-dir", folder)
    assert shown.exit_code == 0, shown.output
    assert "decoder: not finished; its last checkpoint is of step 3" in shown.output
    result = capspoe("sample", "--model-dir", folder, "--out", tmp_path / "a.png")
    fails(result, 1, "has not finished", "same capspoe train to resume")
