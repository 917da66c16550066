"""`capspoe likelihood`."""

from pathlib import Path

import click

from keras_capsule_poe.cli.models import find_model, load_model, load_run_data
from keras_capsule_poe.cli.options import (
    NamedPath,
    data_options,
    model_option,
    place_checker,
    seed_option,
)
from keras_capsule_poe.cli.terminal import Working, guarded, with_tensorflow
from keras_capsule_poe.errors import RunFailed

# Options that some models' `density` takes.
_NAMED = ("base", "routing")


@click.command()
@model_option
@click.option(
    "--base",
    metavar="NAME",
    help="Capsules: the reference distribution, required: ball, isotropic or gaussian.",
)
@click.option(
    "--routing",
    metavar="NAME",
    help="Capsules: `fixed` coupling coefficients (their mean over training images), or `routed` "
    "ones.  [default: fixed]",
)
@click.option(
    "--temperatures",
    type=click.IntRange(min=2),
    help="Annealing temperatures.  [default: 14500, capsules 20]",
)
@click.option(
    "--chains", type=click.IntRange(min=2), help="Annealed chains.  [default: 100, capsules 512]"
)
@click.option("--images", type=click.IntRange(min=2), help="Use the first N test images.")
@click.option(
    "--json",
    "json_path",
    callback=place_checker,
    type=NamedPath(dir_okay=False, path_type=Path),
    help="Write the metrics to a JSON file.",
)
@data_options
@seed_option
@guarded
@with_tensorflow
def likelihood(model_dir, base, routing, temperatures, chains, images, json_path, seed, **places):
    """Estimate the log-likelihood of test images, in nats.

    Annealed importance sampling, forward and reverse, gives estimates of log Z from both
    sides. If a layer is small enough, log Z is also computed exactly. The result uses the
    exact value, or else the middle of the two estimates.
    """
    from keras_capsule_poe.evaluation import likelihood as measured

    folder = find_model(model_dir)
    model = load_model(folder)
    words = {"base": base, "routing": routing}
    named = {name: words[name] for name in _NAMED if words[name] is not None}
    if not measured.has_likelihood(model):
        raise RunFailed(f"The model in {folder} has no likelihood. It is a {model.TITLE}.")
    data = load_run_data(folder, **places)
    with Working("annealing"):
        figures = measured.likelihood(model, data, images, temperatures, chains, seed, **named)
    click.echo(measured.likelihood_text(figures))
    if json_path:
        from keras_capsule_poe.io.records import write_json

        write_json(json_path, figures)
        click.echo(f"Wrote {json_path}")
