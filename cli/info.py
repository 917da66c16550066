"""`capspoe info`."""

import json

import click
from keras_capsule_poe.cli.models import find_model, load_config
from keras_capsule_poe.cli.options import model_option
from keras_capsule_poe.cli.terminal import guarded


@click.command(short_help="Show what a model folder holds.")
@model_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@guarded
def info(model_dir, as_json):
    """Show a model's configuration, stages and results."""
    from keras_capsule_poe.cli.views.summary import show_results, stage_metrics

    from keras_capsule_poe.errors import RunFailed

    if model_dir is not None and not (model_dir / "run.json").exists():
        raise RunFailed(f"{model_dir} holds no training run.")
    folder = model_dir or find_model(None)
    config = load_config(folder).to_dict()
    if as_json:
        click.echo(
            json.dumps(
                {"folder": str(folder), "config": config, "stages": stage_metrics(folder)}, indent=2
            )
        )
        return
    click.echo(f"{folder}: data set {config['dataset']}, seed {config['seed']}")
    for section in ("autoencoder", "primary", "encoder", "decoder"):
        shown = ", ".join(f"{key} {value}" for key, value in config[section].items())
        click.echo(f"{section}: {shown}")
    show_results(folder)
