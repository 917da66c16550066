"""`capspoe sweep`: a training for each combination of settings and each seed."""

import contextlib
import sys

import click

from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.compare import print_columns
from keras_capsule_poe.cli.options import option
from keras_capsule_poe.cli.terminal import echo, resumable
from keras_capsule_poe.cli.train import (
    TrainCommand,
    folder_name,
    split_flags,
    train_all,
    train_options,
    wanted_settings,
)
from keras_capsule_poe.errors import ConfigError, Diverged


class SweepCommand(TrainCommand):
    """Command with the options of `train`."""

    of_set = " Several values, as in KEY=16,32, are trained one after the other."


@click.command(cls=SweepCommand)
@option(
    "--seeds",
    type=options.COUNT,
    default=1,
    help="Trainings of each combination, with seeds from --seed on.",
)
@train_options
@resumable
def sweep(model, preset, model_dir, settings, config, seeds, **flags):
    """Train a model with each combination of values and each seed, and compare the models.

    `--set encoder.dim=16,32 --seeds 3` makes six trainings, each of them as `capspoe train` makes
    it. Each has a folder of its name in MODEL_DIR, by default saved_models/DATASET-sweep. After an
    interruption, the same command goes on: finished models are not trained again. The table at the
    end has metrics of held-out images, by which settings are chosen. `capspoe compare MODEL_DIR`
    measures test images.
    """
    from keras_capsule_poe.runs import check_different, combinations, records, sweep_folder

    flags, how = split_flags(flags)
    fixed, swept = _split(settings)
    first = wanted_settings(model, preset, config, fixed, dict(flags))
    place = sweep_folder(model_dir or options.SAVED_MODELS / f"{folder_name(first)}-sweep")
    wanted = {}
    for name, values in combinations(swept, seeds, first.seed).items():
        assignments = [*fixed, *(f"{key}={value}" for key, value in values.items())]
        given = {**flags, "seed": None}
        wanted[place / name] = wanted_settings(model, preset, config, assignments, given)
    check_different(wanted)
    diverged, folders = [], list(wanted)
    around = _titled(folders, diverged, how["fresh"])
    if not train_all(wanted, **how, around=around):
        return
    if begun := [folder for folder in folders if folder not in diverged]:
        echo()
        print_columns(records(begun), more=f"capspoe compare {place} --recorded --verbose")
    echo(f"\nThe models are in {place}. To measure test images: capspoe compare {place}")
    if diverged:
        echo(f"{len(diverged)} of {len(folders)} trainings failed.", err=True)
        sys.exit(1)


def _split(assignments):
    """Return assignments of one value as they are, and a dict of the lists of several values."""
    fixed, swept = [], {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set takes PART.KEY=VALUE,VALUE. Received: {assignment!r}")
        values = [value.strip() for value in text.split(",")]
        if len(values) == 1:
            fixed.append(assignment)
        elif name.strip() in swept:
            raise ConfigError(f"--set takes all values of {name} at once. Received: {assignment!r}")
        else:
            swept[name.strip()] = values
    return fixed, swept


def _titled(folders, diverged, fresh):
    """Return the function `around` of `train_all`: it prints a title and goes on after failures."""

    @contextlib.contextmanager
    def around(folder, settings):
        is_done = not fresh and _is_trained(folder, settings)
        number = f"[{folders.index(folder) + 1}/{len(folders)}]"
        echo(f"{number} {folder.name}{': trained before' if is_done else ''}")
        try:
            yield not is_done
        except Diverged as error:
            diverged.append(folder)
            echo(f"Error: {error}", err=True)

    return around


def _is_trained(folder, settings):
    """Return whether a folder holds a finished training of as many epochs."""
    from keras_capsule_poe.training import RunFolder

    run, last = RunFolder(folder), list(settings.stages)[-1]
    if run.done(last) is None:
        return False
    other = settings.differences(type(settings).from_dict(run.readable()["config"]))
    return not any(name.endswith((".epochs", ".steps")) for name in other)
