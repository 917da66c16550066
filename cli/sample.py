"""`capspoe sample`."""

import click
from click.core import ParameterSource
from keras_capsule_poe.cli.models import find_model, load_config, load_data, load_model
from keras_capsule_poe.cli.options import (
    PICTURES,
    data_options,
    model_option,
    out_option,
    seed_option,
)
from keras_capsule_poe.cli.terminal import guarded, import_tensorflow

# Options that belong to some modes only.
_MODES = {
    "domain": ("single",),
    "rows": ("single", "joint"),
    "steps": ("chain",),
    "every": ("chain",),
    "start": ("chain",),
    "data_dir": ("chain",),
    "manual_dir": ("chain",),
}
_JOINT_COLUMNS = 20
_CHAIN_COLUMNS = 12
_CHAIN_ROWS = 8


@click.command(short_help="Draw images, as a grid or as arrays: single capsules, all, or a chain.")
@out_option("grid.png", (*PICTURES, ".npz"))
@model_option
@click.option(
    "--mode",
    type=click.Choice(["single", "joint", "chain"]),
    default="single",
    show_default=True,
    help="One capsule at a time, all capsules together, or the model's Markov chain.",
)
@click.option(
    "--domain",
    type=click.Choice(["complete", "restricted", "visited"]),
    default="complete",
    show_default=True,
    help="single: the whole sphere, the half that training visits, or the codes that it visits.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="single, joint: rows of the grid.",
)
@click.option(
    "--n",
    type=click.IntRange(min=1),
    help="Samples in an .npz; chain: number of chains.  [default: 64, 12 chains in a picture]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="chain: up-down passes.",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    help="chain: show every so many steps, and the last.  [default: at most 8 rows]",
)
@click.option(
    "--start",
    type=click.Choice(["noise", "data"]),
    default="noise",
    show_default=True,
    help="chain: from noise, or from test images.",
)
@data_options
@seed_option
@guarded
def sample(out, model_dir, mode, domain, rows, n, steps, every, start, data_dir, manual_dir, seed):
    """Draw images from a trained model.

    \b
    single  each from ONE capsule, all others zero; a picture is the paper's
            grid, one column a capsule
    joint   each from all capsules, drawn together
    chain   states of the model's Markov chain; a picture has one column a
            chain, its start in the first row

    An .npz holds `images` (N, H, W, C) in [0, 1] and `capsules` (N, J, E), with
    single also `capsule` (N,); with chain `images` (S, N, H, W, C) and `step` (S,).
    """
    _check_options(mode, start)
    import_tensorflow()
    folder = find_model(model_dir)
    model = load_model(folder)
    as_arrays = out.suffix.lower() == ".npz"
    if mode == "single":
        content = _single(model, as_arrays, rows, n or 64, domain, seed)
    elif mode == "joint":
        content = _joint(model, as_arrays, rows, n or 64, seed)
    else:
        test = None
        if start == "data":
            test = load_data(load_config(folder), data_dir, manual_dir).test
        every = every or -(-steps // (_CHAIN_ROWS - 1))
        content = _chain(model, as_arrays, test, n, steps, every, seed)
    _write(out, content)
    click.echo(f"Wrote {out}")


def _check_options(mode, start):
    """Refuses options that were given and mean nothing here."""
    context = click.get_current_context()
    for name, modes in _MODES.items():
        if context.get_parameter_source(name) is ParameterSource.DEFAULT:
            continue
        option = f"--{name.replace('_', '-')}"
        if mode not in modes:
            raise click.UsageError(
                f"{option} goes with --mode {' or '.join(modes)}. Received: --mode {mode}"
            )
        if name.endswith("_dir") and start == "noise":
            raise click.UsageError(f"{option} goes with --start data. Received: --start noise")


def _single(model, as_arrays, rows, n, domain, seed):
    from keras_capsule_poe.generation.grids import capsule_grid
    from keras_capsule_poe.generation.sampling import sample_arrays

    return (
        sample_arrays(model, n, seed, domain)
        if as_arrays
        else capsule_grid(model, rows, domain, seed)
    )


def _joint(model, as_arrays, rows, n, seed):
    import numpy as np

    from keras_capsule_poe.generation.sampling import joint_arrays

    drawn = joint_arrays(model, n if as_arrays else rows * _JOINT_COLUMNS, seed)
    return drawn if as_arrays else np.split(drawn["images"], rows)


def _chain(model, as_arrays, test, n, steps, every, seed):
    """Chains from the first `n` of the images `test`, or from noise where there are none."""
    from keras_capsule_poe.generation.chain import chain_arrays, data_start, noise_start

    n = n or (64 if as_arrays else _CHAIN_COLUMNS)
    x = data_start(model, test.head(n).images) if test else noise_start(model, n, seed)
    states = chain_arrays(model, x, steps, every)
    click.echo(f"States after {', '.join(map(str, states['step']))} steps")
    return states if as_arrays else list(states["images"])


def _write(out, content):
    """A dict of arrays as .npz, rows of images as a picture."""
    import numpy as np

    from keras_capsule_poe.io.files import beside
    from keras_capsule_poe.io.pictures import save_grid

    if isinstance(content, dict):
        with beside(out, suffix=".npz") as temporary:
            np.savez_compressed(temporary, **content)
    else:
        save_grid(out, content)
