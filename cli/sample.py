"""`capspoe sample`."""

import click
from click.core import ParameterSource

from keras_capsule_poe.cli.models import find_model, first_images, load_generative, load_run_data
from keras_capsule_poe.cli.options import (
    FIGURES,
    check_plain,
    data_options,
    figure_options,
    model_option,
    out_option,
    seed_option,
)
from keras_capsule_poe.cli.terminal import guarded, import_tensorflow

# Modes that are Markov chains, with their kinds; `chain` is an old name.
CHAINS = {"gibbs": "gibbs", "meanfield": "meanfield", "chain": "meanfield"}
_CHAIN_COLUMNS = 12
_CHAIN_ROWS = 8
# Columns of a picture of one capsule.
_CAPSULE_COLUMNS = 10
# Options of chains only, and of all other modes only.
_PLACES = ("data_dir", "manual_dir", "store")
_OF_CHAINS = ("steps", "every", "burn_in", "start", *_PLACES)
_OF_DRAWS = ("domain", "rows", "capsule")


@click.command()
@out_option("grid.png", (*FIGURES, ".npz"))
@model_option
@click.option(
    "--mode",
    metavar="NAME",
    help="A mode of the model, or its Markov chain: gibbs or meanfield.  [default: the first mode]",
)
@click.option(
    "--domain",
    metavar="NAME",
    help="Domain to sample from, in modes that have several.  [default: the first of the mode]",
)
@click.option(
    "--capsule",
    type=click.IntRange(min=0),
    help="Show this capsule only, in mode single.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Rows of the picture, except for chains.",
)
@click.option(
    "--n",
    type=click.IntRange(min=1),
    help="Number of images in an .npz file, or of chains.  [default: 64; 12 chains in a picture]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Chains: steps after the burn-in.",
)
@click.option(
    "--every",
    "--thin",
    "every",
    type=click.IntRange(min=1),
    help="Chains: show every N-th state and the last one.  [default: at most 8 rows]",
)
@click.option(
    "--burn-in",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Chains: steps before the first shown state.",
)
@click.option(
    "--start",
    type=click.Choice(["noise", "data"]),
    default="noise",
    show_default=True,
    help="Chains: start from noise or from test images.",
)
@figure_options
@data_options
@seed_option
@guarded
def sample(
    out,
    model_dir,
    mode,
    domain,
    capsule,
    rows,
    n,
    steps,
    every,
    burn_in,
    start,
    seed,
    plain,
    cell,
    theme,
    **places,
):
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
    _check_options(mode, start, as_arrays)
    check_plain(out, plain)
    import_tensorflow()
    from keras_capsule_poe.figures import chain_figure, plot_samples, save_figure
    from keras_capsule_poe.io.pictures import check_grid, save_grid
    from keras_capsule_poe.plotting import sample_rows

    folder = find_model(model_dir)
    look = {"cell": cell, "theme": theme}
    model = load_generative(folder)
    known = [*model.modes, *model.CHAINS]
    if mode is not None and CHAINS.get(mode, mode) not in known:
        raise click.BadParameter(
            f"the model has {', '.join(known)}. Received: {mode}", param_hint="--mode"
        )
    if mode in CHAINS:
        test = load_run_data(folder, **places).test if start == "data" else None
        every = every or -(-steps // (_CHAIN_ROWS - 1))
        n = n or (64 if as_arrays else _CHAIN_COLUMNS)
        if not as_arrays:
            check_grid(out, 2 + steps // every, n, model.image_shape)
        states = _chain(model, test, n, steps, every, CHAINS[mode], seed, burn_in)
        if as_arrays:
            _write_arrays(out, states)
        elif plain:
            save_grid(out, list(states["images"]))
        else:
            save_figure(out, chain_figure(states, **look), model.image_shape[1])
    elif as_arrays:
        drawn = model.sample(n or 64, seed, mode, domain, capsule)
        # The arrays of an .npz have the name `capsule` for what `Samples` calls `index`.
        _write_arrays(out, {"capsule" if k == "index" else k: v for k, v in drawn.items()})
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
    click.echo(f"Wrote {out}")


def _check_options(mode, start, as_arrays):
    """Raise for options that were given and have no effect here."""

    def given(*names):
        source = click.get_current_context().get_parameter_source
        names = [name for name in names if source(name) is not ParameterSource.DEFAULT]
        return [f"--{name.replace('_', '-')}" for name in names]

    if mode in CHAINS:
        for option in given(*_OF_DRAWS):
            raise click.UsageError(f"{option} has no effect on chains. Received: --mode {mode}")
        if start == "noise":
            for option in given(*_PLACES):
                raise click.UsageError(f"{option} needs --start data. Received: --start noise")
        return
    for option in given(*_OF_CHAINS):
        received = f"--mode {mode}" if mode else "no --mode"
        raise click.UsageError(f"{option} needs --mode gibbs or meanfield. Received: {received}")
    if as_arrays:
        for option in given("rows", "plain", "cell", "theme"):
            raise click.UsageError(f"{option} needs a picture. An .npz file holds --n images.")
    else:
        for option in given("n"):
            raise click.UsageError(f"{option} needs an .npz file. A picture has --rows rows.")


def _chain(model, test, n, steps, every, kind, seed, burn_in):
    """Return states of `n` chains that start from test images, or from noise without them."""
    from keras_capsule_poe.plotting import chain_arrays, chain_start

    x = chain_start(model, n, seed, first_images(test, n).images if test else None)
    states = chain_arrays(model, x, steps, every, kind, seed, burn_in)
    click.echo(f"States after {', '.join(map(str, states['step']))} steps")
    return states


def _write_arrays(out, arrays):
    """Write a dict of arrays as .npz."""
    import numpy as np

    from keras_capsule_poe.io.atomic import atomic_write

    with atomic_write(out, suffix=".npz") as temporary:
        np.savez_compressed(temporary, **arrays)
