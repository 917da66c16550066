"""What the commands share: options, errors and how a model is found."""

import functools
import os
import sys
import tempfile
from pathlib import Path

import click

SAVED_MODELS = Path("saved_models")


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
    from keras_capsule_poe.data import DataError
    from keras_capsule_poe.training.settings import ConfigError

    return isinstance(error, (DataError, ConfigError))


def _is_expected(error):
    from keras_capsule_poe.files import RunError

    return isinstance(error, RunError) or _is_bad_use(error)


def model_option(function):
    return click.option(
        "--model-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of the trained model.  [default: the newest in saved_models/]",
    )(function)


def seed_option(function):
    return click.option(
        "--seed",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        show_default=True,
        help="What every random choice derives from.",
    )(function)


def out_option(default, kinds):
    def decorate(function):
        return click.option(
            "--out",
            type=click.Path(dir_okay=False, path_type=Path),
            default=default,
            show_default=True,
            callback=suffix_checker(kinds),
            help="File to write.",
        )(function)

    return decorate


def data_options(function):
    """Where the images of a data set are, for every command that needs them."""
    for option in (
        click.option(
            "--data-dir",
            type=click.Path(file_okay=False),
            help="Prepared tensorflow-datasets data.  [default: TFDS_DATA_DIR]",
        ),
        click.option(
            "--manual-dir",
            type=click.Path(exists=True, file_okay=False),
            help="Folder of archives downloaded by hand.",
        ),
    ):
        function = option(function)
    return function


def find_model(model_dir):
    """Folder of a finished model: `model_dir`, or the newest below saved_models/.

    Raises:
        RunError: If there is none.
    """
    from keras_capsule_poe.files import RunError

    if model_dir is not None:
        if not (model_dir / "model.keras").exists():
            raise RunError(
                f"{model_dir} holds no finished model. "
                f"Train one: capspoe train --model-dir {model_dir}"
            )
        return model_dir
    found = sorted(SAVED_MODELS.glob("*/model.keras"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise RunError(
            "There is no trained model in saved_models/. Train one: capspoe train --dataset "
            "digits (no network needed), or name another folder with --model-dir."
        )
    return found[-1].parent


def load_model(folder):
    """The `ProductOfExpertCapsules` of a model folder.

    Raises:
        RunError: If the file is damaged or of another kind.
    """
    import keras

    import keras_capsule_poe.models  # registers the classes  # noqa: F401
    from keras_capsule_poe.files import RunError

    path = Path(folder) / "model.keras"
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(
            f"Cannot load {path} ({reason}). Write it anew: capspoe export --model-dir {folder}"
        ) from error


def load_config(folder):
    """The `RunConfig` that a model folder was trained with."""
    from keras_capsule_poe.files import read_json
    from keras_capsule_poe.training.config import RunConfig

    return RunConfig.from_dict(read_json(Path(folder) / "run.json")["config"])


def load_data(config, data_dir=None, manual_dir=None):
    """The `ImageData` that a configuration names."""
    from keras_capsule_poe.data import load_images

    return load_images(
        config.dataset,
        data_dir=data_dir,
        manual_dir=manual_dir,
        column=config.column,
        image_size=config.image_size,
        grey=config.grey,
        limit=config.limit,
        skip_broken=config.skip_broken,
        seed=config.seed,
    )


def suffix_checker(kinds):
    def check(context, parameter, path):
        if path is not None and path.suffix.lower() not in kinds:
            raise click.BadParameter(f"must end in {' or '.join(kinds)}. Received: {path}")
        return path

    return check


PICTURES = (".png", ".jpg", ".jpeg", ".webp")
