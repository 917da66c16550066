"""Errors as one line with the flag that mends them, interrupts, and outputs that are closed."""

import functools
import io
import os
import re
import signal
import subprocess
import sys
import time
import warnings

import click
import pytest
from click.testing import CliRunner

from keras_capsule_poe.cli.terminal import HINTS, advice, guarded, resumable, working
from keras_capsule_poe.errors import CapspoeError, DataError, RunFailed


def invoke(body, *arguments, decorator=guarded):
    """Result of a command with the options --image-size and --fresh that does `body`."""

    @click.command()
    @click.option("--image-size")
    @click.option("--fresh", is_flag=True)
    @decorator
    def command(image_size, fresh):
        body()

    return CliRunner().invoke(command, arguments)


def fail(error):
    raise error


def test_every_flag_of_the_advice_is_one_of_train():
    from keras_capsule_poe.cli.train import train

    context = train.make_context("train", [], resilient_parsing=True)
    known = {flag for parameter in train.get_params(context) for flag in parameter.opts}
    for word, hint in HINTS.items():
        others = {"leave_out": "data_dir", "name": "dataset", "option": "model"}
        name = others.get(word, "encoder")
        flags = re.findall(r"--[a-z-]+", advice(f"{word}:{name}"))
        assert set(flags) <= known and (flags or "capspoe" in hint), word


def test_advice_follows_the_message():
    for hint, shown in (
        ("image_size", "Bad size. Resize the images with --image-size."),
        (None, "Bad size."),
        ("wings", "Bad size."),
        (("image_size", "fresh"), "--image-size, or start over with --fresh."),
        ("model_dir", "Choose another --model-dir (--model-dir: see capspoe train)."),
        ("stage_fresh:encoder", "again with --stage encoder --fresh (--stage: see capspoe train)."),
        ("learning_rate:decoder", "with a lower --decoder-learning-rate ("),
        ("leave_out:data_dir", "Omit --data-dir ("),
        ("export", "Bad size. Write it again: capspoe export."),
    ):
        result = invoke(functools.partial(fail, DataError("Bad size.", hint)))
        (line,) = result.output.splitlines()
        assert result.exit_code == 2 and line.startswith("Error: Bad size.") and shown in line


def test_exit_codes():
    for error, code in ((DataError("a"), 2), (RunFailed("a"), 1), (CapspoeError("a"), 1)):
        result = invoke(functools.partial(fail, error))
        assert (result.exit_code, result.output) == (code, "Error: a\n")


def test_an_interrupt_says_what_is_left():
    for decorator, arguments, shown in (
        (guarded, (), "Interrupted.\n"),
        (resumable, (), "Run the same command to go on.\n"),
        (resumable, ("--fresh",), "Run the same command without --fresh to go on.\n"),
    ):
        result = invoke(lambda: fail(KeyboardInterrupt()), *arguments, decorator=decorator)
        assert result.exit_code == 130
        assert result.output.startswith("Interrupted") and result.output.endswith(shown)


def test_what_the_machine_refuses_is_said_in_words():
    memory = MemoryError("Unable to allocate 3 GiB")
    for error, shown in (
        (memory, "not enough memory (Unable to allocate 3 GiB)."),
        (PermissionError(13, "Permission denied", "a/b.npz"), "Cannot use a/b.npz: Permission"),
    ):
        result = invoke(functools.partial(fail, error))
        (line,) = result.output.splitlines()
        assert result.exit_code == 1 and shown in line and "--debug" not in line


def test_a_warning_is_one_line_without_a_place_in_a_program():
    def warn():
        click.echo(warnings.formatwarning("not\nkept", UserWarning, "module.py", 3))

    assert "Warning: not kept" in invoke(warn).output
    assert "module.py" in warnings.formatwarning("not kept", UserWarning, "module.py", 3)


def test_a_terminal_sees_what_a_command_does(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with working("encoding") as step:
        step("sampling")
        time.sleep(0.5)
    text = sys.stderr.getvalue()
    assert "encoding " in text and "sampling " in text and "0:00:00" in text
    # Nothing of it is left.
    assert text.endswith("\x1b[1A\x1b[2K")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with working("encoding"):
        pass
    assert not sys.stderr.getvalue()


@pytest.fixture
def interruptible():
    """Interrupts raise, also where a background job of a shell would ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_an_import_turns_into_an_error_of_its_own(interruptible):
    def importing():
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    result = invoke(importing)
    assert (result.exit_code, result.output) == (130, "Interrupted.\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


IMPORTS = """
import sys
from keras_capsule_poe.cli.terminal import import_tensorflow

import_tensorflow()
unused = {"jax", "matplotlib", "pandas", "scipy.sparse", "sklearn"}
assert "tensorflow" in sys.modules and not unused & set(sys.modules), unused & set(sys.modules)
import matplotlib.figure, sklearn.mixture
"""


@pytest.mark.long
def test_packages_that_no_command_uses_of_keras_are_not_imported_with_it():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PROGRAM = """
import click
from keras_capsule_poe.cli.terminal import guarded

@click.command()
@guarded
def command():
    from rich.console import Console
    for line in range(3):
        click.echo(line)
        Console().print("rich")
    with open(OUT, "w") as out:
        out.write("whole")

command()
"""


def run(tmp_path, **outputs):
    """What a program that prints six lines and writes a file leaves: (process, file)."""
    program = PROGRAM.replace("OUT", repr(str(tmp_path / "out")))
    shell = [sys.executable, "-c", program]
    return subprocess.run(shell, text=True, **outputs), tmp_path / "out"


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done, out = run(tmp_path, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
    assert not out.exists()


def test_closed_outputs_are_no_failure(tmp_path):
    for closed in ((1,), (2,), (0, 1, 2)):

        def close(handles=closed):
            for handle in handles:
                os.close(handle)

        done, out = run(tmp_path, preexec_fn=close)
        assert done.returncode == 0 and out.read_text() == "whole"
        out.unlink()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [("--help",), ("train", "--help"), ("info", "--model-dir", "x")])
def test_a_full_disk_behind_the_output_is_a_line(program, words, tiny_model):
    words = [str(tiny_model) if word == "x" else word for word in words]
    with open("/dev/full", "w") as full:
        found = subprocess.run([*program, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    said = [line for line in found.stderr.splitlines() if "Error" in line or "Traceback" in line]
    assert said == ["Error: Cannot use the output: No space left on device."]
    assert found.returncode == 1
