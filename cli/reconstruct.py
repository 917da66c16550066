"""`capspoe reconstruct`."""

import click
from keras_capsule_poe.cli.models import find_model, load_config, load_data, load_model
from keras_capsule_poe.cli.options import PICTURES, data_options, model_option, out_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow


@click.command(short_help="Originals beside what the model makes of them.")
@out_option("reconstructions.png", PICTURES)
@model_option
@click.option(
    "--n", type=click.IntRange(min=1), default=16, show_default=True, help="Number of test images."
)
@data_options
@guarded
@with_tensorflow
def reconstruct(out, model_dir, n, data_dir, manual_dir):
    """Show test images and what the model makes of them.

    Rows: originals, the autoencoder, one contrastive-divergence step, and the
    decoding of the whole code.
    """
    from keras_capsule_poe.generation.grids import reconstruction_grid
    from keras_capsule_poe.io.pictures import save_grid

    folder = find_model(model_dir)
    images = load_data(load_config(folder), data_dir, manual_dir).test.head(n).images
    save_grid(out, reconstruction_grid(load_model(folder), images.astype("float32") / 255))
    click.echo(f"Wrote {out}: originals, autoencoder, one divergence step, whole code")
