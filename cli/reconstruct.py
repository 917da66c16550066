"""`capspoe reconstruct`."""

import click

from keras_capsule_poe.cli.models import (
    find_model,
    first_images,
    load_reconstructing,
    load_run_data,
)
from keras_capsule_poe.cli.options import (
    FIGURES,
    check_plain,
    data_options,
    figure_options,
    model_option,
    out_option,
)
from keras_capsule_poe.cli.terminal import echo_classes, guarded, with_tensorflow


@click.command()
@out_option("reconstructions.png", FIGURES)
@model_option
@click.option(
    "--n", type=click.IntRange(min=1), default=16, show_default=True, help="Number of test images."
)
@figure_options
@data_options
@guarded
@with_tensorflow
def reconstruct(out, model_dir, n, plain, cell, theme, **places):
    """Show test images and their reconstructions.

    The first row shows the originals. Each further row shows one way in which the model
    decodes images. For classifiers the picture also shows the labels and the predictions,
    `5 as 3`. If a prediction is wrong, a third row shows the decoded capsules of the labels.
    For images of two classes, the rows show the two most probable classes, each decoded alone,
    above the true ones.
    """
    check_plain(out, plain)
    from keras_capsule_poe.evaluation.classification import is_classifier
    from keras_capsule_poe.figures import image_figure, save_figure
    from keras_capsule_poe.io.pictures import check_grid, save_grid
    from keras_capsule_poe.plotting import as_words, named_rows, reconstruction_rows, row_names

    folder = find_model(model_dir)
    model = load_reconstructing(folder)
    test = first_images(load_run_data(folder, **places).test, n)
    check_grid(out, 1, len(test), model.image_shape)
    labels, captions = test.labels if is_classifier(model) else None, ()
    if labels is None:
        rows = reconstruction_rows(model, test.images)
    else:
        found, rows = named_rows(model, test)
        captions = as_words(labels, found, test.class_names)
    if plain:
        save_grid(out, list(rows.values()), captions=captions)
    else:
        columns = captions or [str(k) for k in range(len(test))]
        block = (list(rows.values()), row_names(rows), columns, None)
        figure = image_figure([block], "Test images and their reconstructions", cell, theme)
        save_figure(out, figure, model.image_shape[1])
    click.echo(f"Wrote {out}: {', '.join(name.replace('_', ' ') for name in rows)}")
    if labels is not None:
        echo_classes(test.class_names, labels=labels, named=found)
