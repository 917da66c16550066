"""Commands that show a model: `sample`, `reconstruct`, `segment`, `traverse` and `explore`."""

from pathlib import Path

import click

from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.options import (
    COUNT,
    FIGURES,
    INDEX,
    PICTURES,
    ModelPath,
    NamedPath,
    option,
)
from keras_capsule_poe.cli.terminal import echo, echo_classes, guarded
from keras_capsule_poe.core.arguments import capsule_given
from keras_capsule_poe.errors import CapspoeError

# Modes that are Markov chains, with their kinds; `chain` is an old name.
CHAINS = {"gibbs": "gibbs", "meanfield": "meanfield", "chain": "meanfield"}
# Default columns and rows of a picture of chains, and columns of one of a single capsule.
_CHAIN_COLUMNS, _CHAIN_ROWS, _CAPSULE_COLUMNS = 12, 8, 10
_PLACES = ("data_dir", "manual_dir", "store")
# Capsules are shorter than 1, so a larger span moves every code to the edge; and the default for
# models without a `SPAN`.
WIDEST, SPAN = 2.0, 0.5
# Test images among which those with an active capsule are looked for.
_SEARCHED = 500


@click.command()
@options.out_option("grid.png", (*FIGURES, ".npz"))
@options.model_option
@option(
    "--mode",
    metavar="NAME",
    help="A mode of the model, or its Markov chain: gibbs or meanfield.  [default: the first mode]",
)
@option(
    "--domain",
    metavar="NAME",
    help="Domain to sample from, in modes that have several.  [default: the first of the mode]",
)
@option("--capsule", type=INDEX, help="Show this capsule only, in mode single.")
@option("--rows", type=COUNT, default=4, help="Rows of the picture, except for chains.")
@option(
    "--n",
    type=COUNT,
    help="Number of images in an .npz file, or of chains.  [default: 64; 12 chains in a picture]",
)
@option("--steps", type=COUNT, default=20, help="Chains: steps after the burn-in.")
@option(
    "--every",
    "--thin",
    "every",
    type=COUNT,
    help="Chains: show every N-th state and the last one.  [default: at most 8 rows]",
)
@option("--burn-in", type=INDEX, default=0, help="Chains: steps before the first shown state.")
@option(
    "--start",
    type=click.Choice(["noise", "data"]),
    default="noise",
    help="Chains: start from noise or from test images.",
)
@options.figure_options
@options.data_options
@options.seed_option
@guarded
def sample(
    out, model_dir, mode, domain, capsule, rows, n, steps, every, burn_in, start, seed, plain,
    look, **places,
):  # fmt: skip
    """Generate images with a trained model.

    \b
    single     each image from ONE capsule, with all others zero; a picture is the
               paper's grid, with one column for each capsule.
               Domains: prior, half_space, posterior
    joint      each image from all capsules, which are sampled together
    gibbs      states of the model's Markov chain, with a random sample at each
               step; a picture has one column for each chain, first state on top
    meanfield  the same with means instead of random samples (also called chain)

    Models of other kinds may have other modes. For an unknown mode, the error
    message lists the modes of the model. A picture and an .npz of as many images
    hold the same images if the seed is the same.

    An .npz holds `images` (N, H, W, C) in [0, 1] and `capsules` (N, J, E). Mode
    single adds `capsule` (N,). For chains it holds `images` (S, N, H, W, C) and
    `step` (S,).
    """
    as_arrays = out.suffix.lower() == ".npz"
    _check_sampling(mode, start, as_arrays)
    options.check_plain(out, plain)
    folder = options.find_model(model_dir)
    from keras_capsule_poe.figures import chain_figure, plot_samples, save_figure
    from keras_capsule_poe.io.pictures import check_grid, save_grid
    from keras_capsule_poe.plotting import sample_rows

    model = options.load_able(folder, "generates")
    known = [*model.modes, *model.CHAINS]
    if mode is not None and CHAINS.get(mode, mode) not in known:
        raise click.BadParameter(
            f"the model has {', '.join(known)}. Received: {mode}", param_hint="--mode"
        )
    if mode in CHAINS:
        test = options.load_run_data(folder, **places).test if start == "data" else None
        every = every or -(-steps // (_CHAIN_ROWS - 1))
        n = n or (64 if as_arrays else _CHAIN_COLUMNS)
        if not as_arrays:
            check_grid(out, 2 + steps // every, n, model.image_shape)
        states = _chain(model, test, n, steps, every, CHAINS[mode], seed, burn_in)
        if as_arrays:
            options.write_arrays(out, states)
        elif plain:
            save_grid(out, list(states["images"]))
        else:
            save_figure(out, chain_figure(states, **look), model.image_shape[1])
    elif as_arrays:
        drawn = model.sample(n or 64, seed, mode, domain, capsule)
        # The arrays of an .npz have the name `capsule` for what `Samples` calls `index`.
        arrays = {"capsule" if k == "index" else k: v for k, v in drawn.items()}
        options.write_arrays(out, arrays)
    else:
        mode, domain = model.resolve_mode(mode, domain)
        columns = model.modes[mode].columns if capsule is None else _CAPSULE_COLUMNS
        check_grid(out, rows, columns, model.image_shape)
        if plain:
            save_grid(out, sample_rows(model, rows, seed, mode, domain, capsule, columns))
        else:
            which = {"mode": mode, "domain": domain, "capsule": capsule, "seed": seed}
            figure = plot_samples(model, rows * columns, **which, **look)
            save_figure(out, figure, model.image_shape[1])
    echo(f"Wrote {out}")


def _check_sampling(mode, start, as_arrays):
    """Raise for the first option that was given and has no effect here."""
    if mode in CHAINS:
        names = ("domain", "rows", "capsule")
        options.refuse_given(f"has no effect on chains. Received: --mode {mode}", *names)
        if start == "noise":
            options.refuse_given("needs --start data. Received: --start noise", *_PLACES)
        return
    received = f"--mode {mode}" if mode else "no --mode"
    names = ("steps", "every", "burn_in", "start", *_PLACES)
    options.refuse_given(f"needs --mode gibbs or meanfield. Received: {received}", *names)
    if as_arrays:
        names = ("rows", "plain", "cell", "width", "columns", "theme", "title")
        options.refuse_given("needs a picture. An .npz file holds --n images.", *names)
    else:
        options.refuse_given("needs an .npz file. A picture has --rows rows.", "n")


def _chain(model, test, n, steps, every, kind, seed, burn_in):
    """Return states of `n` chains that start from test images, or from noise without them."""
    from keras_capsule_poe.plotting import chain_arrays, chain_start

    x = chain_start(model, n, seed, options.first_images(test, n).images if test else None)
    states = chain_arrays(model, x, steps, every, kind, seed, burn_in)
    echo(f"States after {', '.join(map(str, states['step']))} steps")
    return states


@click.command()
@options.out_option("reconstructions.png", FIGURES)
@options.model_option
@options.images_option
@options.figure_options
@options.data_options
@guarded
def reconstruct(out, model_dir, n, plain, look, **places):
    """Show test images and their reconstructions.

    The first row shows the originals. Each further row shows one way in which the model
    decodes images. For classifiers the picture also shows the labels and the predictions,
    `5 as 3`. If a prediction is wrong, a third row shows the decoded capsules of the labels.
    For images of two classes, the rows show the two most probable classes, each decoded alone,
    above the true ones.
    """
    options.check_plain(out, plain)
    folder = options.find_model(model_dir)
    from keras_capsule_poe.figures import image_figure, save_figure
    from keras_capsule_poe.io.pictures import check_grid, save_grid
    from keras_capsule_poe.models.base.protocols import is_classifier
    from keras_capsule_poe.plotting import as_words, named_rows, reconstruction_rows, row_names

    model = options.load_able(folder, "reconstructs")
    test = options.first_images(options.load_run_data(folder, **places).test, n)
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
        figure = image_figure([block], "Test images and their reconstructions", **look)
        save_figure(out, figure, model.image_shape[1])
    echo(f"Wrote {out}: {', '.join(name.replace('_', ' ') for name in rows)}")
    if labels is not None:
        echo_classes(test.class_names, labels=labels, named=found)


@click.command()
@options.out_option("segmented.png", PICTURES)
@options.model_option
@options.images_option
@options.data_options
@guarded
def segment(out, model_dir, n, **places):
    """Separate two overlapping objects by colour.

    The first row shows test images. The second row shows the two most probable classes of
    each image, decoded one by one: the first in orange, the second in blue, and white where
    they overlap. If the data set has each object alone, the last row shows the true objects.
    """
    folder = options.find_model(model_dir)
    from keras_capsule_poe.io.pictures import check_grid, save_grid
    from keras_capsule_poe.plotting import segmented

    model = options.load_able(folder, "names and decodes")
    test = options.first_images(options.load_run_data(folder, **places).test, n)
    check_grid(out, 1, len(test), model.image_shape)
    pairs = test.labels if test.labels is not None and test.labels.shape[1:] == (2,) else None
    named, rows = segmented(model, test.images, pairs, test.extras.get("targets"))
    save_grid(out, list(rows.values()))
    echo(f"Wrote {out}: {', '.join(rows)}; orange+blue")
    if test.labels is not None:
        echo_classes(test.class_names, labels=test.labels)
    echo_classes(test.class_names, named=named)


def _check_span(context, parameter, span):
    if span is not None and not 0 < span <= WIDEST:  # NaN is refused as well
        raise click.BadParameter(
            f"must be a number above 0 and at most {WIDEST:g}, since capsules are shorter than 1. "
            f"Received: {span:g}"
        )
    return span


@click.command()
@options.out_option("traverse.png", FIGURES)
@options.model_option
@option(
    "--image",
    "chosen",
    multiple=True,
    type=INDEX,
    help="Index of the test image. With --couplings it may be given several times.  [default: 0; "
    "with --capsule, no image]",
)
@option(
    "--capsule",
    type=INDEX,
    help="Index of the capsule: alone, around its usual code, unless --image is given.  "
    "[default: the most probable one of the image]",
)
@option("--steps", type=click.IntRange(min=2), default=11, help="Number of images of each row.")
@option(
    "--span",
    type=float,
    callback=_check_span,
    help="The code moves from -SPAN to SPAN, at most 2. Generative models then restore the "
    "length of the capsule; classifiers decode the moved capsule alone.  [default: 0.5, "
    "classifiers 0.25]",
)
@option(
    "--rows",
    type=COUNT,
    default=32,
    help="Maximum number of rows.",
)
@option(
    "--couplings",
    is_flag=True,
    help="Show the coupling coefficients of routing instead, by iteration: their mean for each "
    "class, and a histogram for one class (--capsule). Convolutional capsules also show the "
    "activations of each layer.",
)
@options.figure_options
@options.data_options
@guarded
def traverse(out, model_dir, chosen, capsule, steps, span, rows, couplings, plain, look, **places):
    """Vary the image of one capsule, in one way by each row.

    The first rows change a property such as height or slant; R² says how much of it the code
    explains. The other rows each move one dimension of the code; those that change the image most
    come first. For models of neurons it shows instead how
    each neuron changes the image. With --couplings it shows how routing couples each image
    to the classes, with one row for each image.
    """
    from keras_capsule_poe.io.pictures import check_grid

    options.check_plain(out, plain)
    folder = options.find_model(model_dir)
    if couplings:
        options.refuse_given("has no effect with --couplings.", "steps", "span", "rows")
    elif len(chosen) > 1:
        raise click.UsageError("Several --image need --couplings.")
    model = options.load_routed(folder) if couplings else options.load_able(folder, "reconstructs")
    if capsule is not None:
        capsule = capsule_given(capsule, model.capsules)
    if not couplings:
        if hasattr(model, "neuron_values"):
            why = "has no effect on a model of neurons, whose effects are shown."
            options.refuse_given(why, "steps", "span", "rows", "plain", "chosen")
            return _show_filters(out, model, capsule, look)
        from keras_capsule_poe.directions import MOST

        check_grid(out, min(rows, model.dim + MOST), steps, model.image_shape)
    from keras_capsule_poe.plotting import moved_capsule

    # Single capsules of some models generate images.
    is_generative = "single" in getattr(model, "modes", ())
    span = getattr(model, "SPAN", SPAN) if span is None else span
    if not couplings and not chosen and capsule is not None and is_generative:
        where = "alone, around its usual code"
        moved = moved_capsule(model, capsule, None, rows, steps, span)
        return _save(out, model, moved, span, where, plain, look)
    chosen = chosen or (0,)
    test = options.load_run_data(folder, **places).test
    if max(chosen) >= len(test):
        raise click.BadParameter(
            f"there are {len(test)} test images. Received: {max(chosen)}", param_hint="--image"
        )
    if couplings:
        return _show_couplings(out, model, test, list(chosen), capsule)
    if capsule is not None and is_generative:
        _check_active(model, test, chosen[0], capsule)
    shown = test.images[chosen[0] : chosen[0] + 1]
    named_by = None if is_generative else test
    moved = moved_capsule(model, capsule, shown, rows, steps, span, named_by)
    _save(out, model, moved, span, f"of test image {chosen[0]}", plain, look)


def _save(out, model, moved, span, where, plain, look):
    """Write a picture with one row for each change of a capsule, and say so."""
    from keras_capsule_poe.figures import image_figure, save_figure, span_labels
    from keras_capsule_poe.io.pictures import save_grid

    images, capsule, names = moved
    title = f"Capsule {capsule} {where}: one change in each row"
    if plain:
        save_grid(out, images)
    else:
        block = (images, names, span_labels(span, images.shape[1]), None)
        save_figure(out, image_figure([block], title, **look), model.image_shape[1])
    echo(f"Wrote {out}: {title}, from -{span:g} to +{span:g}")
    echo(f"Rows: {'; '.join(names)}")


def _show_filters(out, model, capsule, look):
    """Write the effects of neurons."""
    from keras_capsule_poe.figures import plot_filters, save_figure

    save_figure(out, plot_filters(model, capsule=capsule, **look), model.image_shape[1])
    echo(f"Wrote {out}: how each neuron changes the image, the strongest first")


def _check_active(model, test, image, capsule):
    """Raise if a capsule is not active on an image, and name images on which it is."""
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


def _show_couplings(out, model, test, chosen, capsule):
    """Write the coupling coefficients of images, one row for each."""
    from keras_capsule_poe.charts import coupling_chart, layer_maps
    from keras_capsule_poe.charts import couplings as couplings_of
    from keras_capsule_poe.io.pictures import save_chart
    from keras_capsule_poe.plotting import class_words

    images = test.images[chosen]
    c, capsules = couplings_of(model, images, capsule)
    titles = [f"image {image}" for image in chosen]
    if test.labels is not None:
        labels = class_words(test.labels[chosen], test.class_names)
        titles = [f"{title},\nlabel {label}" for title, label in zip(titles, labels)]
    layers = layer_maps(model, images, capsules)
    save_chart(out, coupling_chart(images, c, capsules, titles, test.class_names, layers))
    echo(f"Wrote {out}: coupling coefficients, one row per image")
    for title, pairs, j in zip(titles, c, capsules):
        means = " ".join(f"{mean:.3f}" for mean in pairs[..., j].mean(axis=1))
        title = title.replace("\n", " ")
        echo(f"{title}: mean coupling to capsule {j} by iteration {means}")


@click.command()
@click.argument(
    "models", metavar="[MODEL]...", nargs=-1, type=ModelPath(file_okay=False, path_type=Path)
)
@options.model_option
@option(
    "--static", type=NamedPath(path_type=Path), help="Write the page to this folder, for any host."
)
@option("--port", type=click.IntRange(1, 65_535), help="Port of the page.  [default: a free one]")
@option("--no-browser", is_flag=True, help="Do not open a browser.")
@options.data_options
@guarded
def explore(models, model_dir, static, port, no_browser, **places):
    """Play with a trained model in a browser on this machine.

    The page shows what each capsule draws, and changes it by sliders with names. It encodes what
    you draw or load. The model runs in the browser, so the page works offline and, with --static,
    on any host of files.

    MODEL is the folder of a trained model or the name of a pretrained one: mnist,
    fashion_mnist. The default is the newest model in saved_models/. The page shows a drawing
    to two models side by side.
    """
    import webbrowser

    if len(models) > 2 or (models and model_dir):
        given = " ".join(map(str, models))
        more = f", --model-dir {model_dir}" if model_dir else ""
        raise click.UsageError(f"Give one model or two. Received: {given}{more}")
    names = models or (model_dir,)
    folders = [options.find_model(name) for name in names]
    from keras_capsule_poe.explorer import explore as launch
    from keras_capsule_poe.explorer.page import check_folder

    check_folder(static)
    shown = []
    for name, folder in zip(names, folders):
        model = options.load_model(folder)
        try:
            images = options.load_run_data(folder, **places).test
        except CapspoeError as error:
            # A page without test images is worth having.
            echo(f"The page has no test images of {folder.name}: {error}", err=True)
            images = None
        shown.append((model, images, str(name or folder)))
    echo("Writing the page: files of the model, and the directions of its capsules ...")
    pictures = folders[0] / "pictures"
    given = {"pictures": pictures if pictures.is_dir() else None, "static": static, "port": port}
    page = launch(*shown[0], beside=shown[1] if shown[1:] else None, **given)
    if static:
        echo(f"Wrote {page}. To look at it: python -m http.server -d {page}")
        return
    echo(f"Open {page.local_url} in a browser. Ctrl-C ends the page.")
    if not no_browser:
        webbrowser.open(page.local_url)
    try:
        page.wait()
    finally:
        page.close()
