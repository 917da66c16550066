"""`capspoe export`."""

import click
from keras_capsule_poe.cli.models import find_model, load_config, load_model
from keras_capsule_poe.cli.options import model_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow


@click.command(short_help="Write the SavedModel of a trained model anew.")
@model_option
@click.option(
    "--domain",
    type=click.Choice(["complete", "restricted", "visited"]),
    default="complete",
    show_default=True,
    help="What its sample endpoints draw from.",
)
@guarded
@with_tensorflow
def export(model_dir, domain):
    """Write a SavedModel, as the next version in the model folder.

    Any TensorFlow program loads it with `tf.saved_model.load`, without this package.
    """
    from keras_capsule_poe.cli.views.summary import stage_metrics

    from keras_capsule_poe.serving.saved_model import export_saved_model

    folder = find_model(model_dir)
    config = load_config(folder).to_dict()
    version = export_saved_model(load_model(folder), folder, config, stage_metrics(folder), domain)
    click.echo(f"Wrote {version}")
