"""`capspoe explore`."""

from pathlib import Path

import click

from keras_capsule_poe.cli.models import find_model, load_model, load_run_data
from keras_capsule_poe.cli.options import ModelPath, data_options, model_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow
from keras_capsule_poe.errors import CapspoeError


@click.command()
@click.argument("model", required=False, type=ModelPath(file_okay=False, path_type=Path))
@model_option
@click.option(
    "--port", type=click.IntRange(1, 65_535), help="Port of the page.  [default: a free one]"
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@data_options
@guarded
@with_tensorflow
def explore(model, model_dir, port, no_browser, **places):
    """Play with a trained model in a browser on this machine.

    The page shows what each capsule draws, and moves its dimensions by sliders. It encodes
    images that you draw or upload. Only this machine can reach it, and it works offline.

    MODEL is the folder of a trained model or the name of a pretrained one: mnist,
    fashion_mnist. The default is the newest model in saved_models/.
    """
    from keras_capsule_poe.explorer import explore as launch
    from keras_capsule_poe.explorer import gradio

    if model and model_dir:
        raise click.UsageError(f"Give one model. Received: {model}, --model-dir {model_dir}")
    model_dir = model or model_dir
    folder = find_model(model_dir)
    gradio()
    model = load_model(folder)
    try:
        images = load_run_data(folder, **places).test
    except CapspoeError as error:
        # A page without test images is worth having.
        click.echo(f"The page has no test images: {error}", err=True)
        images = None
    options = {"server_port": port, "inbrowser": not no_browser, "inline": False}
    page = launch(model, images, str(model_dir or folder), **options)
    click.echo(f"Open {page.local_url} in a browser. Ctrl-C ends the page.")
    page.block_thread()
