"""The group of commands: quick help, near words, completion, and how commands end."""

import contextlib
import os
import pty
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete
from PIL import Image

from keras_capsule_poe.cli.main import COMMANDS, main


def test_help_is_quick_and_imports_no_tensorflow():
    program = (
        "import sys, click.testing, keras_capsule_poe\n"
        "from keras_capsule_poe.cli.main import main\n"
        "from keras_capsule_poe.registry import names\n"
        "def imported():\n"
        "    unwanted = ('tensorflow', 'keras', 'numpy', 'pydantic', 'rich')\n"
        "    return [name for name in unwanted if name in sys.modules]\n"
        "def help_of(*words):\n"
        "    assert click.testing.CliRunner().invoke(main, [*words, '--help']).exit_code == 0\n"
        "help_of()\n"
        "print(imported())\n"
        "of_models = [['train', '--model', name] for name in names()]\n"
        "for words in (['train'], ['sample'], ['evaluate'], ['info'], *of_models):\n"
        "    help_of(*words)\n"
        "from keras_capsule_poe.cli.train import wanted_settings\n"
        "for name in names():\n"
        "    wanted_settings(name, None, None, (), {})\n"
        "print([name for name in imported() if name != 'pydantic'])\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout.split("\n")[:2] == ["[]", "[]"], shown.stderr


def test_every_command_has_help_and_takes_no_empty_folder(asked, tmp_path, monkeypatch):
    # An empty word comes from `--model-dir "$MODEL"` where MODEL is not set.
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        assert asked(command, "--help").startswith("Usage:")
        # `compare` takes folders as arguments.
        option = [] if command == "compare" else ["--model-dir"]
        words = (*(option or ["MODEL_DIR"]), "must not be empty", "''")
        asked(command, *option, "", code=2, last=words)
    train = ("train", "--dataset", "mnist", "--model-dir", "m")
    asked(*train, "--store", "", code=2, last=("--store", "must not be empty", "''"))
    assert not list(tmp_path.iterdir())


FIRST = """
import sys
from click.testing import CliRunner
from keras_capsule_poe.cli.main import main
# They take seconds to import.
sys.modules["keras"] = sys.modules["tensorflow"] = None
for words in COMMANDS:
    print(CliRunner().invoke(main, words).output.splitlines()[0])
"""


def test_every_command_says_something_before_it_imports_tensorflow(tmp_path):
    place = ("--model-dir", "mnist")
    image = tmp_path / "a.png"
    Image.new("L", (28, 28)).save(image)
    alone = ("sample", "reconstruct", "segment", "traverse", "evaluate", "report", "explore")
    commands = [[name, *place] for name in (*alone, "likelihood", "export")]
    commands += [[name, str(image), *place] for name in ("classify", "encode")]
    commands += [["compare", "mnist", "fashion_mnist", "--recorded"]]
    commands += [["train", "--model-dir", "m"], ["sweep", "--model-dir", "m", "--seeds", "2"]]
    program = FIRST.replace("COMMANDS", repr(commands))
    shell = [sys.executable, "-c", program]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=tmp_path)
    *single, several, trained, swept = done.stdout.splitlines()
    assert single == ["Model: mnist"] * 11, done.stdout + done.stderr
    assert several == "Models: mnist, fashion_mnist"
    what = "model capsules, preset generation, data set fashion_mnist"
    assert trained == f"m: {what}" and swept == f"m/seed=0 and 1 more: {what}"


def on_terminal(command, environment):
    """What a program writes on a terminal."""
    reader, writer = pty.openpty()
    outputs = {"stdout": writer, "stderr": writer}
    process = subprocess.Popen(command, env={**os.environ, **environment}, **outputs)
    os.close(writer)
    shown = b""
    # The terminal is gone with its last writer.
    with contextlib.suppress(OSError):
        while part := os.read(reader, 65536):
            shown += part
    os.close(reader)
    process.wait()
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("colours", [True, False])
@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_has_a_red_error_and_lines_that_fit(program, columns, colours):
    more = {"COLUMNS": str(columns), **({} if colours else {"NO_COLOR": "1"})}
    words = ["sample", "--model-dir", "no/such/folder/with/a/name"]
    shown = [on_terminal([*program, *each], more) for each in (words, ["sample", "--rwos"], [])]
    text = "".join(shown)
    assert text.count("\x1b[31mError\x1b[0m: ") == 2 * colours
    lines = click.unstyle(text).splitlines()
    assert sum(line.startswith("Error: ") for line in lines) == 2
    assert max(map(len, lines)) <= columns
    assert "capspoe explore fashion_mnist" in " ".join(" ".join(lines).split())


def test_a_mistyped_word_is_answered_with_the_nearest(asked):
    for words, near in (
        (["trian"], "train"), (["samples"], "sample"), (["sample", "--rwos", "3"], "--rows"),
    ):  # fmt: skip
        shown = asked(*words, code=2)
        assert near in shown and "id you mean" in shown


def completed(words, incomplete):
    found = ShellComplete(main, {}, "capspoe", "_CAPSPOE_COMPLETE")
    return [item.value for item in found.get_completions(words, incomplete)]


def test_the_shell_completes_models_and_data_sets(tmp_path, monkeypatch):
    (tmp_path / "saved_models" / "mine").mkdir(parents=True)
    (tmp_path / "saved_models" / "mine" / "model.keras").touch()
    (tmp_path / "prepared" / "kmnist").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    assert completed([], "tr") == ["train", "traverse"]
    assert completed(["sample", "--model-dir"], "") == [
        "fashion_mnist", "mnist", "saved_models/mine",
    ]  # fmt: skip
    assert completed(["explore"], "saved") == ["saved_models/mine"]
    assert completed(["train", "--dataset"], "k") == ["kmnist"]
    assert "digits" in completed(["train", "--dataset"], "")


def test_an_interrupt_promises_checkpoints_only_of_training(asked, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_capsule_poe.training.train", interrupted)
    monkeypatch.setattr("keras_capsule_poe.cli.options.find_model", interrupted)
    train = ("train", "--dataset", "digits", "--model-dir", tmp_path / "m")
    asked(*train, code=130, last="same command")
    assert asked("sample", code=130) == "Interrupted.\n"


def test_unforeseen_errors_take_one_line_and_debug_shows_more(
    asked, capspoe, tmp_path, monkeypatch
):
    def broken(*arguments, **options):
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("keras_capsule_poe.training.train", broken)
    train = ("train", "--dataset", "digits", "--model-dir", tmp_path / "m")
    asked(*train, code=1, last=("RuntimeError: first second", "--debug"))
    assert isinstance(capspoe(*train, "--debug").exception, RuntimeError)


@pytest.mark.parametrize("command", ["evaluate", "likelihood", "reconstruct"])
def test_a_file_that_cannot_be_written_is_refused_first(asked, tmp_path, command):
    file = tmp_path / "file"
    file.write_text("kept")
    option = "--out" if command == "reconstruct" else "--json"
    options = ("--model-dir", tmp_path, option, file / "deep" / "a.png")
    asked(command, *options, code=2, last=(option, f"{file} is not a folder"))
    assert file.read_text() == "kept"
