"""The terminal: TensorFlow without its start-up lines, errors as one line, exit codes."""

import functools
import os
import sys
import tempfile

import click


def import_tensorflow():
    """Imports TensorFlow without its start-up lines on the terminal.

    They come before any logging level counts, straight from C++, hence the file descriptor.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as lines:
        try:
            os.dup2(lines.fileno(), 2)
            import keras  # noqa: F401
            import tensorflow
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    # Its warnings are for programmers: that a function was traced for each of many models.
    tensorflow.get_logger().setLevel("ERROR")


def guarded(function):
    """Turns failures into one line and an exit code: 2 bad use, 1 failure, 130 interrupt.

    `--debug` shows the traceback as well.
    """

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def command(*args, debug, **kwargs):
        try:
            return function(*args, **kwargs)
        except click.ClickException:
            raise
        except KeyboardInterrupt:
            click.echo(
                "Interrupted; the last checkpoint is kept. Run the same command to go on.", err=True
            )
            sys.exit(130)
        except Exception as error:
            if debug:
                raise
            click.echo(f"Error: {_one_line(error)}", err=True)
            sys.exit(2 if _is_bad_use(error) else 1)

    return command


def with_tensorflow(function):
    """For commands that need it from the start."""

    @functools.wraps(function)
    def command(*args, **kwargs):
        import_tensorflow()
        return function(*args, **kwargs)

    return command


def _one_line(error):
    text = " ".join(str(error).split()) or type(error).__name__
    if _is_expected(error):
        return text
    return f"{type(error).__name__}: {text[:300]} (--debug shows where)"


def _is_bad_use(error):
    from keras_capsule_poe.errors import BadUse

    return isinstance(error, BadUse)


def _is_expected(error):
    from keras_capsule_poe.errors import CapspoeError

    return isinstance(error, CapspoeError)
