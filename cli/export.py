"""`capspoe export`."""

import click

from keras_capsule_poe.cli.models import find_model, load_config, load_model
from keras_capsule_poe.cli.options import model_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow


@click.command()
@model_option
@click.option(
    "--domain",
    metavar="NAME",
    help="Domain of its sample endpoints, see `capspoe sample`.  [default: the model's first]",
)
@guarded
@with_tensorflow
def export(model_dir, domain):
    """Write a SavedModel as the next version in the model folder.

    Any TensorFlow program can load it with `tf.saved_model.load`, without this package.
    """
    from keras_capsule_poe.serving import export_saved_model
    from keras_capsule_poe.training import RunFolder

    folder = find_model(model_dir)
    config, model = load_config(folder), load_model(folder)
    options = {}
    if domain is not None:
        if not hasattr(model, "resolve_mode"):
            raise click.UsageError("--domain needs a model that generates images.")
        options["domain"] = model.resolve_mode(domain=domain)[1]
    card = RunFolder(folder).card(config)
    click.echo(f"Wrote {export_saved_model(model, folder, card, options)}")
