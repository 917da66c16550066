"""`capspoe sample`."""

import click

from keras_capsule_poe.cli.common import (
    PICTURES,
    find_model,
    guarded,
    load_model,
    model_option,
    out_option,
    seed_option,
    with_tensorflow,
)


@click.command(short_help="Draw images from single capsules, as a grid or as arrays.")
@out_option("grid.png", (*PICTURES, ".npz"))
@model_option
@click.option("--domain", type=click.Choice(["complete", "restricted", "visited"]), default="complete", show_default=True, help="The whole sphere, the half that training visits, or the codes that it visits.")
@click.option("--rows", type=click.IntRange(min=1), default=4, show_default=True, help="Rows of the grid.")
@click.option("--n", type=click.IntRange(min=1), default=64, show_default=True, help="Number of samples in an .npz.")
@seed_option
@guarded
@with_tensorflow
def sample(out, model_dir, domain, rows, n, seed):
    """Draw images, each from ONE capsule; all others are zero.

    A picture is the paper's grid, one column a capsule. An .npz holds the arrays
    `images` (N, H, W, C) in [0, 1], `capsule` (N,) and `capsules` (N, J, E).
    """
    model = load_model(find_model(model_dir))
    if out.suffix == ".npz":
        _arrays(model, out, n, seed, domain)
    else:
        from keras_capsule_poe.pictures import capsule_grid, save_grid

        save_grid(out, capsule_grid(model, rows, domain, seed))
    click.echo(f"Wrote {out}")


def _arrays(model, out, n, seed, domain):
    import numpy as np

    from keras_capsule_poe.files import beside
    from keras_capsule_poe.sampling import sample_arrays

    with beside(out, suffix=".npz") as temporary:
        np.savez_compressed(temporary, **sample_arrays(model, n, seed, domain))
