"""`capspoe traverse`."""

import click
from click.core import ParameterSource

from keras_capsule_poe.cli.models import find_model, load_reconstructing, load_routed, load_run_data
from keras_capsule_poe.cli.options import PICTURES, data_options, model_option, out_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow

# Capsules are shorter than 1, so a larger span moves every code to the edge.
WIDEST = 2.0
# Default for models without a `SPAN`.
SPAN = 0.5


def _check_span(context, parameter, span):
    if span is not None and not 0 < span <= WIDEST:  # NaN is refused as well
        raise click.BadParameter(
            f"must be a number above 0 and at most {WIDEST:g}, since capsules are shorter than 1. "
            f"Received: {span:g}"
        )
    return span


@click.command()
@out_option("traverse.png", PICTURES)
@model_option
@click.option(
    "--image",
    "chosen",
    multiple=True,
    type=click.IntRange(min=0),
    default=[0],
    help="Index of the test image. With --couplings it may be given several times.  [default: 0]",
)
@click.option(
    "--capsule",
    type=click.IntRange(min=0),
    help="Index of the capsule.  [default: the most probable]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=2),
    default=11,
    show_default=True,
    help="Number of values of each dimension.",
)
@click.option(
    "--span",
    type=float,
    callback=_check_span,
    help="Each dimension moves from -SPAN to SPAN, at most 2. Generative models then restore the "
    "length of the capsule; classifiers decode the moved capsule alone.  [default: 0.5, "
    "classifiers 0.25]",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Maximum number of dimensions. Those that change the image most are shown.",
)
@click.option(
    "--couplings",
    is_flag=True,
    help="Show the coupling coefficients of routing instead, by iteration: their mean for each "
    "class, and a histogram for one class (--capsule). Convolutional capsules also show the "
    "activations of each layer.",
)
@data_options
@guarded
@with_tensorflow
def traverse(out, model_dir, chosen, capsule, steps, span, rows, couplings, **places):
    """Vary the dimensions of one capsule, one at a time.

    The picture has one row for each dimension. With --couplings it shows instead how
    routing couples each image to the classes, with one row for each image.
    """
    folder = find_model(model_dir)
    _check_arguments(couplings, chosen)
    model = (load_routed if couplings else load_reconstructing)(folder)
    test = load_run_data(folder, **places).test
    if max(chosen) >= len(test):
        raise click.BadParameter(
            f"there are {len(test)} test images. Received: {max(chosen)}", param_hint="--image"
        )
    if capsule is not None and capsule >= model.capsules:
        raise click.BadParameter(
            f"there are {model.capsules} capsules. Received: {capsule}", param_hint="--capsule"
        )
    if couplings:
        return _show_couplings(out, model, test, list(chosen), capsule)
    from keras_capsule_poe.io.pictures import check_grid, save_grid
    from keras_capsule_poe.plotting import image_traversal

    check_grid(out, min(rows, model.dim), steps, model.image_shape)
    span = getattr(model, "SPAN", SPAN) if span is None else span
    shown = test.images[chosen[0] : chosen[0] + 1]
    images, capsule, dimensions = image_traversal(model, shown, capsule, steps, span, rows)
    save_grid(out, images)
    click.echo(
        f"Wrote {out}: capsule {capsule}, one row per dimension, from -{span:g} to +{span:g}"
    )
    if len(dimensions) < model.dim:
        click.echo(f"Dimensions {', '.join(map(str, dimensions))} of {model.dim}")


def _check_arguments(couplings, chosen):
    """Raise for options that have no effect here."""
    if not couplings:
        if len(chosen) > 1:
            raise click.UsageError("Several --image need --couplings.")
        return
    context = click.get_current_context()
    for name in ("steps", "span", "rows"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} has no effect with --couplings.")


def _show_couplings(out, model, test, chosen, capsule):
    from keras_capsule_poe.io.charts import save_chart
    from keras_capsule_poe.plotting import class_words, coupling_chart, layer_maps
    from keras_capsule_poe.plotting import couplings as couplings_of

    images = test.images[chosen]
    c, capsules = couplings_of(model, images, capsule)
    titles = [f"image {image}" for image in chosen]
    if test.labels is not None:
        labels = class_words(test.labels[chosen], test.class_names)
        titles = [f"{title}, label {label}" for title, label in zip(titles, labels)]
    layers = layer_maps(model, images, capsules)
    save_chart(out, coupling_chart(images, c, capsules, titles, test.class_names, layers))
    click.echo(f"Wrote {out}: coupling coefficients, one row per image")
    for title, pairs, j in zip(titles, c, capsules):
        means = " ".join(f"{mean:.3f}" for mean in pairs[..., j].mean(axis=1))
        click.echo(f"{title}: mean coupling to capsule {j} by iteration {means}")
