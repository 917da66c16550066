"""`capspoe segment`."""

import click

from keras_capsule_poe.cli.models import find_model, first_images, load_naming, load_run_data
from keras_capsule_poe.cli.options import PICTURES, data_options, model_option, out_option
from keras_capsule_poe.cli.terminal import echo_classes, guarded, with_tensorflow


@click.command()
@out_option("segmented.png", PICTURES)
@model_option
@click.option(
    "--n", type=click.IntRange(min=1), default=16, show_default=True, help="Number of test images."
)
@data_options
@guarded
@with_tensorflow
def segment(out, model_dir, n, **places):
    """Separate two overlapping objects by colour.

    The first row shows test images. The second row shows the two most probable classes of
    each image, decoded one by one: the first in red, the second in green, and yellow where
    they overlap. If the data set has each object alone, the last row shows the true objects.
    """
    from keras_capsule_poe.io.pictures import check_grid, save_grid
    from keras_capsule_poe.plotting import segmented

    folder = find_model(model_dir)
    model = load_naming(folder)
    test = first_images(load_run_data(folder, **places).test, n)
    check_grid(out, 1, len(test), model.image_shape)
    pairs = test.labels if test.labels is not None and test.labels.shape[1:] == (2,) else None
    named, rows = segmented(model, test.images, pairs, test.extras.get("targets"))
    save_grid(out, list(rows.values()))
    click.echo(f"Wrote {out}: {', '.join(rows)}; red+green")
    if test.labels is not None:
        echo_classes(test.class_names, labels=test.labels)
    echo_classes(test.class_names, named=named)
