"""`capspoe traverse`."""

import click
from click.core import ParameterSource

from keras_capsule_poe.cli.models import find_model, load_reconstructing, load_routed, load_run_data
from keras_capsule_poe.cli.options import (
    FIGURES,
    check_plain,
    data_options,
    figure_options,
    model_option,
    out_option,
)
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow

# Capsules are shorter than 1, so a larger span moves every code to the edge.
WIDEST = 2.0
# Default for models without a `SPAN`.
SPAN = 0.5
# Test images among which those with an active capsule are looked for.
_SEARCHED = 500


def _check_span(context, parameter, span):
    if span is not None and not 0 < span <= WIDEST:  # NaN is refused as well
        raise click.BadParameter(
            f"must be a number above 0 and at most {WIDEST:g}, since capsules are shorter than 1. "
            f"Received: {span:g}"
        )
    return span


@click.command()
@out_option("traverse.png", FIGURES)
@model_option
@click.option(
    "--image",
    "chosen",
    multiple=True,
    type=click.IntRange(min=0),
    help="Index of the test image. With --couplings it may be given several times.  [default: 0; "
    "with --capsule, no image]",
)
@click.option(
    "--capsule",
    type=click.IntRange(min=0),
    help="Index of the capsule: alone, around its usual code, unless --image is given.  "
    "[default: the most probable one of the image]",
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
@figure_options
@data_options
@guarded
@with_tensorflow
def traverse(
    out, model_dir, chosen, capsule, steps, span, rows, couplings, plain, cell, theme, **places
):
    """Vary the dimensions of one capsule, one at a time.

    The picture has one row for each dimension. For models of neurons it shows instead how
    each neuron changes the image. With --couplings it shows how routing couples each image
    to the classes, with one row for each image.
    """
    check_plain(out, plain)
    folder = find_model(model_dir)
    _check_arguments(couplings, chosen)
    model = (load_routed if couplings else load_reconstructing)(folder)
    look = {"cell": cell, "theme": theme}
    if capsule is not None and capsule >= model.capsules:
        raise click.BadParameter(
            f"there are {model.capsules} capsules. Received: {capsule}", param_hint="--capsule"
        )
    if not couplings and hasattr(model, "neuron_values"):
        return _show_filters(out, model, capsule, look)
    if not couplings and not chosen and capsule is not None and is_generative(model):
        return _show_usual(out, model, capsule, steps, span, rows, plain, look)
    chosen = chosen or (0,)
    test = load_run_data(folder, **places).test
    if max(chosen) >= len(test):
        raise click.BadParameter(
            f"there are {len(test)} test images. Received: {max(chosen)}", param_hint="--image"
        )
    if couplings:
        return _show_couplings(out, model, test, list(chosen), capsule)
    from keras_capsule_poe.plotting import image_traversal

    span = getattr(model, "SPAN", SPAN) if span is None else span
    _check_active(model, test, chosen[0], capsule)
    shown = test.images[chosen[0] : chosen[0] + 1]
    images, capsule, dimensions = image_traversal(model, shown, capsule, steps, span, rows)
    title = f"Capsule {capsule} of test image {chosen[0]}: one dimension moved in each row"
    _save(out, model, images, dimensions, title, span, plain, look)


def is_generative(model):
    """Return whether single capsules of the model generate images."""
    return "single" in getattr(model, "modes", ())


def _save(out, model, images, dimensions, title, span, plain, look):
    """Write a picture with one row for each dimension, and say so."""
    import numpy as np

    from keras_capsule_poe.figures import image_figure, save_figure
    from keras_capsule_poe.io.pictures import check_grid, save_grid

    check_grid(out, len(images), len(images[0]), model.image_shape)
    if plain:
        save_grid(out, images)
    else:
        names = [f"dimension {d}" for d in dimensions]
        columns = [f"{value:+.2g}" for value in np.linspace(-span, span, len(images[0]))]
        figure = image_figure([(images, names, columns, None)], title, **look)
        save_figure(out, figure, model.image_shape[1])
    click.echo(f"Wrote {out}: {title}, from -{span:g} to +{span:g}")
    if len(dimensions) < model.dim:
        click.echo(f"Dimensions {', '.join(map(str, dimensions))} of {model.dim}")


def _show_usual(out, model, capsule, steps, span, rows, plain, look):
    """Write the traversals of a capsule alone, around its usual code."""
    import numpy as np

    from keras_capsule_poe.figures import usual_code
    from keras_capsule_poe.plotting import traversal
    from keras_capsule_poe.sampling import render

    span = SPAN if span is None else span
    code, order = usual_code(model, capsule)
    dimensions = sorted(order[:rows])
    codes = traversal(code, capsule, dimensions, steps, span, model.CODES)
    images = np.split(render(model, np.concatenate(codes)), len(codes))
    title = f"Capsule {capsule} alone: one dimension moved in each row"
    _save(out, model, images, dimensions, title, span, plain, look)


def _show_filters(out, model, capsule, look):
    """Write the effects of neurons."""
    from keras_capsule_poe.figures import plot_filters, save_figure

    save_figure(out, plot_filters(model, capsule=capsule, **look), model.image_shape[1])
    click.echo(f"Wrote {out}: how each neuron changes the image, the strongest first")


def _check_active(model, test, image, capsule):
    """Raise if a capsule is not active on an image, and name images on which it is."""
    if capsule is None or not is_generative(model):
        return
    import numpy as np

    from keras_capsule_poe.data.mapping import map_batches
    from keras_capsule_poe.figures import ACTIVE

    searched = test.images[: max(_SEARCHED, image + 1)]
    p = map_batches(model.encode, searched)["probabilities"][:, capsule]
    if p[image] >= ACTIVE:
        return
    best = [int(k) for k in np.argsort(-p, kind="stable")[:5] if p[k] >= ACTIVE]
    offer = f"Try --image {', '.join(map(str, best))}, or" if best else "Try"
    raise click.BadParameter(
        f"capsule {capsule} is not active on test image {image} (probability {p[image]:.2g}), so "
        f"moving it changes nothing. {offer} --capsule {capsule} without --image.",
        param_hint="--capsule",
    )


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
    from keras_capsule_poe.io.pictures import save_chart
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
