"""`capspoe info`."""

import json

import click

from keras_capsule_poe.cli.models import find_model, load_config, load_model
from keras_capsule_poe.cli.options import model_option
from keras_capsule_poe.cli.terminal import guarded, import_tensorflow
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.pretrained import pretrained_folder

# Run settings that are always shown.
_SAID = ("model", "recipe", "dataset", "split", "seed")


@click.command()
@model_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@guarded
def info(model_dir, as_json):
    """Show a model's configuration, stages and results.

    The text leaves out settings that have no effect; --json shows all of them.
    """
    from keras_capsule_poe.cli.views import show_results
    from keras_capsule_poe.training import RunConfig, RunFolder

    folder = pretrained_folder(model_dir) or model_dir or find_model(None)
    config = load_config(folder)
    values = config.to_dict()
    run = RunFolder(folder)
    problem = _problem(run, config)
    if as_json:
        stages = run.metrics(config.family)
        shown = {"folder": str(folder), "config": values, "stages": stages, "problem": problem}
        click.echo(json.dumps(shown, indent=2))
        return
    split = f" split by {config.split}" if config.split else ""
    usual = RunConfig(config.family, config.recipe).to_dict()
    other = [
        f", {name} {value}"
        for name, value in values.items()
        if name not in (*_SAID, *config.sections) and value != usual[name]
    ]
    click.echo(
        f"{folder}: model {config.family.name}, recipe {config.recipe}, data set "
        f"{config.dataset}{split}, seed {config.seed}{''.join(other)}"
    )
    if run.class_names:
        click.echo(f"classes: {', '.join(run.class_names)}")
    idle = config.family.idle(config)
    for section in config.sections:
        shown = ", ".join(
            f"{key} {value}"
            for key, value in values[section].items()
            if f"{section}.{key}" not in idle
        )
        if shown:
            click.echo(f"{section}: {shown}")
    show_results(folder, config.family)
    if problem:
        click.echo(problem)


def _problem(run, config):
    """Return why a finished model cannot be loaded, or None."""
    if run.done(config.stages[-1].name) is None:
        return None
    import_tensorflow()
    try:
        load_model(run.path)
    except RunFailed as error:
        return str(error)
    return None
