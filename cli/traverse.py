"""`capspoe traverse`."""

import click

from keras_capsule_poe.cli.models import find_model, load_reconstructing, load_run_data
from keras_capsule_poe.cli.options import PICTURES, data_options, model_option, out_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow

# Codes are shorter than one: beyond twice that every one ends at the edge.
WIDEST = 2.0
# How far a dimension is moved, of models that do not say it.
SPAN = 0.5


def _check_span(context, parameter, span):
    if span is not None and not 0 < span <= WIDEST:  # NaN is refused as well
        raise click.BadParameter(
            f"must be a number above 0 and at most {WIDEST:g}: capsules are shorter than 1. "
            f"Received: {span:g}"
        )
    return span


@click.command()
@out_option("traverse.png", PICTURES)
@model_option
@click.option(
    "--image", type=click.IntRange(min=0), default=0, show_default=True, help="Which test image."
)
@click.option(
    "--capsule", type=click.IntRange(min=0), help="Which capsule.  [default: the most probable]"
)
@click.option(
    "--steps",
    type=click.IntRange(min=2),
    default=11,
    show_default=True,
    help="Values of each dimension.",
)
@click.option(
    "--span",
    type=float,
    callback=_check_span,
    help="How far each dimension is moved, up and down, at most 2. The capsule of a model that "
    "draws then gets its length back; that of a classifier stands alone, as it is moved.  "
    "[default: the model's: 0.5, classifiers 0.25]",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Dimensions shown, at most: of more, those that change the image most.",
)
@data_options
@guarded
@with_tensorflow
def traverse(out, model_dir, image, capsule, steps, span, rows, data_dir, manual_dir):
    """Vary one capsule's dimensions one at a time: a row a dimension."""
    from keras_capsule_poe.generation.grids import image_traversal
    from keras_capsule_poe.io.pictures import save_grid

    folder = find_model(model_dir)
    model = load_reconstructing(folder)
    span = getattr(model, "SPAN", SPAN) if span is None else span
    test = load_run_data(folder, data_dir, manual_dir).test
    if image >= len(test):
        raise click.BadParameter(
            f"there are {len(test)} test images. Received: {image}", param_hint="--image"
        )
    if capsule is not None and capsule >= model.capsules:
        raise click.BadParameter(
            f"there are {model.capsules} capsules. Received: {capsule}", param_hint="--capsule"
        )
    shown = test.images[image : image + 1]
    images, capsule, dimensions = image_traversal(model, shown, capsule, steps, span, rows)
    save_grid(out, images)
    click.echo(f"Wrote {out}: capsule {capsule}, a row a dimension, from -{span:g} to +{span:g}")
    if len(dimensions) < model.dim:
        click.echo(f"Dimensions {', '.join(map(str, dimensions))} of {model.dim}")
