"""Options that the commands share."""

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem

# Data sets that the shell completes, beside prepared ones.
BUILT_IN = ("digits", "mnist", "fashion_mnist", "viewpoints", "multimnist", "affnist")
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
FIGURES = (*PICTURES, ".pdf", ".svg")


class NamedPath(click.Path):
    """Path type that rejects the empty path, for instance from an unset shell variable."""

    def convert(self, value, parameter, context):
        if value == "":
            self.fail("a path must not be empty. Received: ''", parameter, context)
        return super().convert(value, parameter, context)


class ModelPath(NamedPath):
    """Path of a trained model, or the name of a pretrained one, completed by the shell."""

    def shell_complete(self, context, parameter, incomplete):
        from keras_capsule_poe.pretrained import pretrained_names

        folders = [str(path.parent) for path in Path("saved_models").glob("*/model.keras")]
        known = [name for name in (*pretrained_names(), *sorted(folders))]
        found = [CompletionItem(name) for name in known if name.startswith(incomplete)]
        return found or super().shell_complete(context, parameter, incomplete)


class DatasetName(click.ParamType):
    """Name or path of a data set, completed by the shell."""

    name = "text"

    def shell_complete(self, context, parameter, incomplete):
        prepared = Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
        folders = [path.name for path in prepared.glob("*") if path.is_dir()]
        known = dict.fromkeys([*BUILT_IN, *sorted(folders)])
        found = [CompletionItem(name) for name in known if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


def model_option(function):
    return click.option(
        "--model-dir",
        "--model",
        "model_dir",
        type=ModelPath(file_okay=False, path_type=Path),
        help="Folder of the trained model, or the name of a pretrained one: mnist, fashion_mnist.  "
        "[default: the newest in saved_models/]",
    )(function)


def seed_option(function):
    return click.option(
        "--seed",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        show_default=True,
        help="Random seed.",
    )(function)


def out_option(default, kinds):
    def decorate(function):
        return click.option(
            "--out",
            type=NamedPath(dir_okay=False, path_type=Path),
            default=default,
            show_default=True,
            callback=suffix_checker(kinds),
            help="File to write.",
        )(function)

    return decorate


def figure_options(function):
    """Add the options for the look of a figure."""
    for option in (
        click.option(
            "--plain",
            is_flag=True,
            help="Write the images alone, without labels. Not for PDF and SVG.",
        ),
        click.option(
            "--theme",
            type=click.Choice(["light", "dark"]),
            default="light",
            show_default=True,
            help="Colours of the figure.",
        ),
        click.option(
            "--cell",
            type=click.FloatRange(0.05, 20),
            default=0.6,
            show_default=True,
            help="Width of each image in inches.",
        ),
    ):
        function = option(function)
    return function


def check_plain(out, plain):
    """Raise if a picture without labels is to be a vector file."""
    if plain and out.suffix.lower() not in PICTURES:
        raise click.UsageError(f"--plain needs {' or '.join(PICTURES)}. Received: {out}")


def data_options(function):
    """Add the options for the location of the images."""
    for option in (
        click.option(
            "--data-dir",
            type=NamedPath(file_okay=False),
            help="Folder of prepared tensorflow-datasets data.  [default: TFDS_DATA_DIR]",
        ),
        click.option(
            "--manual-dir",
            type=NamedPath(exists=True, file_okay=False),
            help="Folder of archives downloaded by hand, or of the affNIST files.",
        ),
        click.option(
            "--store",
            metavar="DIR",
            type=NamedPath(file_okay=False),
            help="Copy the images to DIR once and read them from there. Use it for more images "
            "than fit into memory.  [default: in memory]",
        ),
    ):
        function = option(function)
    return function


def place_checker(context, parameter, path):
    """Reject a path that cannot be written, before a computation of minutes."""
    if path is None:
        return path
    try:
        place = path.absolute().parent
        while not place.exists():
            place = place.parent
    except OSError as error:
        # A name is too long, or the working folder is gone.
        raise click.BadParameter(f"{error.strerror}. Received: {str(path):.200}") from error
    if not place.is_dir():
        raise click.BadParameter(f"{place} is not a folder. Received: {path}")
    if not os.access(place, os.W_OK):
        raise click.BadParameter(f"{place} cannot be written to. Received: {path}")
    return path


def suffix_checker(kinds):
    def check(context, parameter, path):
        if path is not None and path.suffix.lower() not in kinds:
            raise click.BadParameter(f"must end in {' or '.join(kinds)}. Received: {path}")
        return place_checker(context, parameter, path)

    return check
