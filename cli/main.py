"""`capspoe`, the command line for capsule models."""

import importlib

import click

from keras_capsule_poe import __version__

COMMANDS = {
    "train": "Train a model, stage by stage; the same command again resumes.",
    "sample": "Draw images, as a grid or as arrays, in one of the model's modes.",
    "reconstruct": "Originals beside what the model makes of them.",
    "segment": "Pull two overlapping things apart, one in red, one in green.",
    "traverse": "Vary one capsule's dimensions around a real image's code.",
    "evaluate": "Measure reconstruction, representation and samples, with controls.",
    "likelihood": "Measure the log-likelihood of test images, log Z from both sides.",
    "export": "Write the SavedModel of a trained model anew.",
    "info": "Show what a model folder holds.",
}


class LazyGroup(click.Group):
    """Group that imports the module of a command when it is called, so that `--help` is quick."""

    def list_commands(self, context):
        return list(COMMANDS)

    def get_command(self, context, name):
        if name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"keras_capsule_poe.cli.{name}"), name)

    def format_commands(self, context, formatter):
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="capspoe")
def main():
    """Train capsule models on images, and generate images with them.

    Start with `capspoe train --dataset digits`, which needs no network, then
    `capspoe sample --out grid.png`. Exit codes: 0 success, 1 failure, 2 bad use,
    130 interrupted.
    """
