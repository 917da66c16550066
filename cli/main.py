"""`capspoe`, the command line for capsule models."""

import difflib
import functools
import importlib
import shutil
import sys

import click

from keras_capsule_poe import __version__

# Commands with their modules and descriptions.
COMMANDS = {
    "train": ("train", "Train a model, stage by stage. The same command resumes."),
    "sweep": ("sweep", "Train a model with several values of settings and several seeds."),
    "sample": ("show", "Generate images with a model, as a picture or as arrays."),
    "reconstruct": ("show", "Show test images above their reconstructions."),
    "segment": ("show", "Separate two overlapping objects by colour."),
    "traverse": ("show", "Vary each dimension of a capsule."),
    "evaluate": ("measure", "Measure a model: reconstruction, classification, samples."),
    "compare": ("compare", "Compare models, in a table with a column for each."),
    "report": ("measure", "Write an HTML page that shows a model and its capsules."),
    "classify": ("new_images", "Print the most probable classes of images."),
    "encode": ("new_images", "Print the most probable capsules of images; write their codes."),
    "explore": ("show", "Play with a model in a browser on this machine."),
    "likelihood": ("measure", "Estimate the log-likelihood of test images, with bounds."),
    "export": ("export", "Write the SavedModel of a trained model again."),
    "info": ("export", "Show settings, stages and results of a model folder."),
}


class LazyGroup(click.Group):
    """Group that imports the module of a command when it is called, so that `--help` is quick."""

    def list_commands(self, context):
        return list(COMMANDS)

    def get_command(self, context, name):
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"keras_capsule_poe.cli.{COMMANDS[name][0]}")
        return getattr(module, name)

    def resolve_command(self, context, args):
        name = args[0] if args else ""
        near = difflib.get_close_matches(name, COMMANDS, n=2)
        if name not in COMMANDS and near:
            context.fail(f"There is no command {name!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(context, args)

    def invoke(self, context):
        try:
            return super().invoke(context)
        except click.ClickException as error:
            from keras_capsule_poe.cli.terminal import show_error

            error.show = functools.partial(show_error, error)
            raise

    def main(self, *args, **kwargs):
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            # The text of `--help`, to a full disk.
            from keras_capsule_poe.cli.terminal import echo, one_line

            echo(f"Error: {one_line(error)}", err=True)
            sys.exit(1)

    def format_commands(self, context, formatter):
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


# click would fill 50 columns of a narrower terminal.
_WIDTH = max(24, min(shutil.get_terminal_size().columns, 80) - 2)
_SETTINGS = {"help_option_names": ["-h", "--help"], "terminal_width": _WIDTH}


@click.command(cls=LazyGroup, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="capspoe")
def main():
    """Train capsule models on images, and generate images with them.

    Start with `capspoe explore fashion_mnist`, a trained model to play with in a
    browser. `capspoe train --dataset digits` trains one in minutes, without a
    network. Exit codes: 0 success, 1 failure, 2 bad use, 130 interrupted.
    """
