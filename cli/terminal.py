"""Terminal behaviour: no start-up lines of TensorFlow, one-line errors, exit codes."""

import contextlib
import errno
import functools
import io
import os
import re
import signal
import sys
import threading
import warnings

import click

from keras_capsule_poe.errors import BadUse, CapspoeError, is_lack_of_memory, lack_of_memory
from keras_capsule_poe.io.text import for_terminal, printable, replaced_letters

# Hints for the words of `CapspoeError.hint`.
HINTS = {
    "image_size": "resize the images with --image-size",
    "store": "keep them on disk with --store",
    "store_dir": "choose another --store",
    "held_out": "give more images, or a smaller --held-out",
    "column": "choose the images with --column",
    "label_column": "choose the labels with --label-column",
    "labels": "read the labels from a file with --labels {name}",
    "train_dir": "name the folders with --train-dir and --test-dir",
    "max_value": "give the largest value with --max-value",
    "skip_broken": "skip such files with --skip-broken",
    "data_dir": (
        "set TFDS_DATA_DIR or --data-dir to a folder where it is prepared, or --manual-dir to a "
        "folder with its hand-downloaded archives, or use --dataset digits, which needs no download"
    ),
    "leave_out": "omit --{option}",
    "name": "give it with --{option}",
    "option": "see --{option} in capspoe train --help",
    "fresh": "start over with --fresh",
    "stage_fresh": "train that stage again with --stage {name} --fresh",
    "learning_rate": "start it over, --stage {name} --fresh, with a lower --{name}-learning-rate",
    "model_dir": "choose another --model-dir",
    "export": "write it again: capspoe export",
    "train": "train one: capspoe train",
    "all_workers": "run the same capspoe train on all of them to resume from the last checkpoint",
    "go_on": "run the same capspoe train to resume",
}
# Keras and TensorFlow import these if they are installed, for features that no command uses. This
# takes two fifths of their import time.
_UNUSED = ("jax", "matplotlib", "pandas", "scipy.sparse", "sklearn")


def echo(text="", err=False, **style):
    """Print a text; a terminal has lines that break between words, colours and a red "Error"."""
    text = for_terminal(str(text), sys.stderr if err else sys.stdout)
    if text.startswith("Error: "):
        text = click.style("Error", fg="red") + text.removeprefix("Error")
    elif style:
        text = click.style(text, **style)
    click.echo(text, err=err, color=False if os.environ.get("NO_COLOR") else None)


def show_error(error, file=None):
    """Print a `ClickException` as click does, through `echo`."""
    shown = io.StringIO()
    type(error).show(error, shown)
    usage, begin, message = shown.getvalue().rstrip("\n").partition("Error: ")
    click.echo(usage, nl=False, err=True)
    echo(begin + message, err=True)


def import_tensorflow():
    """Import TensorFlow, which `_startup` keeps quiet, without packages that no command uses."""
    if "tensorflow" in sys.modules:
        return
    # Off by default without AVX512, although steps are faster with it there, too.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise click.UsageError(
            f"capspoe needs Keras' TensorFlow backend. Received: KERAS_BACKEND={backend}"
        )
    with _hidden(*_UNUSED):
        import keras  # noqa: F401
        import tensorflow
    # Its warnings, for instance about repeated tracing, are for programmers.
    tensorflow.get_logger().setLevel("ERROR")


@contextlib.contextmanager
def _hidden(*names):
    """Context in which packages that are not imported yet cannot be imported."""
    names = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def guarded(function, resumes=False):
    """Turn errors into one line and an exit code: 2 bad use, 1 failure, 130 interrupt."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def command(*args, debug, **kwargs):
        _fill_closed_outputs()
        with _interrupts() as interrupted, _plain_warnings(), replaced_letters():
            try:
                return function(*args, **kwargs)
            except click.ClickException:
                raise
            except BrokenPipeError:
                # The reader is gone; click ends the command quietly, with exit code 1.
                if resumes and (kept := _kept()):
                    echo(f"The output was closed{kept}", err=True)
                raise
            except (Exception, KeyboardInterrupt) as error:
                # An interrupt during the import of C code becomes another error.
                if interrupted.is_set() or isinstance(error, KeyboardInterrupt):
                    echo(f"Interrupted{(resumes and _kept()) or '.'}", err=True)
                    sys.exit(130)
                if debug:
                    raise
                echo(f"Error: {one_line(error)}", err=True)
                sys.exit(2 if isinstance(error, BadUse) else 1)

    return command


resumable = functools.partial(guarded, resumes=True)


@contextlib.contextmanager
def working(text="working"):
    """Context that shows on a terminal what a command does, and for how long it has done so.

    Its value is a function of the text of the next step.
    """
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    is_terminal = sys.stderr.isatty()
    console = Console(stderr=True, force_terminal=is_terminal)
    columns = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not is_terminal) as shown:
        task = shown.add_task(text, total=None)
        yield lambda text: shown.reset(task, description=text)


def advice(hint):
    """Return the hint for remedies from `HINTS` (a word, a tuple of words or None), maybe empty."""
    words = hint if isinstance(hint, tuple) else (hint or "",)
    pairs = [word.partition(":") for word in words]
    known = [
        HINTS[word].format(name=name, option=name.replace("_", "-"))
        for word, _, name in pairs
        if word in HINTS
    ]
    if not known:
        return ""
    text = ", or ".join(known)
    foreign = [flag for flag in re.findall(r"--[a-z-]+", text) if flag not in _flags()]
    where = f" ({', '.join(dict.fromkeys(foreign))}: see capspoe train)" if foreign else ""
    return f"{text[0].upper()}{text[1:]}{where}."


def _flags():
    """Return the flags of the current command."""
    context = click.get_current_context(silent=True)
    parameters = context.command.get_params(context) if context else ()
    return {flag for parameter in parameters for flag in parameter.opts}


def _kept():
    """Return that the current command can go on, or "" for a dry run, which has no checkpoints."""
    params = click.get_current_context().params
    if params.get("dry_run"):
        return ""
    change = " without --fresh" if params.get("fresh") else ""
    return f"; every checkpoint is kept. Run the same command{change} to go on."


@contextlib.contextmanager
def _interrupts():
    """Context with an event that is set when the user interrupts, for any exception."""
    seen = threading.Event()

    def interrupt(*arguments):
        seen.set()
        signal.default_int_handler(*arguments)

    # A background command ignores interrupts, and only the main thread may set a handler.
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _plain_warnings():
    """Context that prints warnings as one line, without the place in the code."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: (
        for_terminal(f"Warning: {' '.join(str(message).split())}", sys.stderr) + "\n"
    )
    try:
        yield
    finally:
        warnings.formatwarning = before


def _fill_closed_outputs():
    """Replace closed standard outputs, so that no file opened later takes their numbers."""
    if None not in (sys.stdout, sys.stderr):
        return
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)


def one_line(error):
    """Return the text of an error in one line, with what mends it."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    if is_lack_of_memory(error):
        return str(lack_of_memory(error))
    is_of_file = isinstance(error, OSError) and error.strerror
    if is_of_file and (error.filename or error.errno == errno.ENOSPC):
        return f"Cannot use {error.filename or 'the output'}: {error.strerror}."
    if not isinstance(error, CapspoeError):
        return f"{type(error).__name__}: {text[:300]} (--debug shows where)"
    hinted = advice(error.hint)
    return f"{text.rstrip('.')}. {hinted}" if hinted else text


def echo_classes(names=None, /, **lines):
    """Print the classes of images (N,), or (N, T) as `3+8`, in one line for each keyword."""
    from keras_capsule_poe.plotting import class_words

    for name, classes in lines.items():
        echo(f"{name} {' '.join(class_words(classes, names))}")
