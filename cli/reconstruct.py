"""`capspoe reconstruct`."""

import click

from keras_capsule_poe.cli.models import find_model, load_generative, load_run_data
from keras_capsule_poe.cli.options import PICTURES, data_options, model_option, out_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow


@click.command()
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

    The first row shows the originals; below it is a row for each way down that the model has.
    """
    from keras_capsule_poe.generation.grids import reconstruction_rows
    from keras_capsule_poe.io.pictures import save_grid

    folder = find_model(model_dir)
    images = load_run_data(folder, data_dir, manual_dir).test.head(n).images
    rows = reconstruction_rows(load_generative(folder), images)
    save_grid(out, list(rows.values()))
    click.echo(f"Wrote {out}: {', '.join(name.replace('_', ' ') for name in rows)}")
