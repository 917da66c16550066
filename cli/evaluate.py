"""`capspoe evaluate`."""

import itertools
from pathlib import Path

import click

from keras_capsule_poe.cli.models import (
    find_model,
    load_config,
    load_model,
    load_run_data,
    own_seconds,
)
from keras_capsule_poe.cli.options import data_options, model_option, seed_option, suffix_checker
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow


@click.command()
@model_option
@click.option(
    "--also",
    multiple=True,
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="A further model of the same data set, for instance of another seed; the tables then "
    "show mean and standard deviation.",
)
@click.option(
    "--against",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Another classifier of the same test images, for instance the control without routing: "
    "McNemar's test of the two.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="Images of each kind, judged by a classifier that is trained once and cached; 0: none.",
)
@click.option(
    "--vae-seconds",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="A control among the samples, a variational autoencoder of as many parameters, is trained "
    "for as long as the model's own were, at most this; 0: none.",
)
@click.option(
    "--probe-images",
    type=click.IntRange(min=20),
    help="Training images that probes learn from.  [default: all]",
)
@click.option("--limit", type=click.IntRange(min=10), help="Use only the first N test images.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures to a file as well.",
)
@click.option(
    "--page",
    "page_path",
    callback=suffix_checker((".html",)),
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with tables, pictures and what each capsule means (.html).",
)
@data_options
@seed_option
@guarded
@with_tensorflow
def evaluate(
    model_dir,
    also,
    against,
    samples,
    vae_seconds,
    probe_images,
    limit,
    json_path,
    page_path,
    data_dir,
    manual_dir,
    seed,
):
    """Measure a trained model on its test images.

    A model that names classes: its accuracy, and the errors of each class. One that generates
    images: reconstruction, representation and samples, which are judged by a small classifier
    of the same data set, beside controls decoded as its own features are. The classifier is
    kept in CAPSPOE_CACHE, or ~/.cache/keras_capsule_poe.
    """
    if also and against:
        raise click.UsageError("--against goes with one model. Received: --also")
    folders = [find_model(model_dir), *(find_model(folder) for folder in also)]
    dataset = load_config(folders[0]).dataset
    control = find_model(against) if against else None
    compared = [("--also", folder) for folder in folders[1:]]
    for flag, folder in [*compared, *([("--against", control)] if control else [])]:
        name = load_config(folder).dataset
        if name != dataset:
            raise click.BadParameter(
                f"{folder} was trained on {name}, not {dataset}.", param_hint=flag
            )
    from keras_capsule_poe.data import ImageData
    from keras_capsule_poe.evaluation.report import measure, tables, write_report
    from keras_capsule_poe.evaluation.tables import text_table

    def load(folder):
        # What is held out for testing may depend on the model's own seed.
        data = load_run_data(folder, data_dir, manual_dir)
        if limit:
            data = ImageData(data.train, data.test.head(limit))
        return load_model(folder), data

    def figures(folder, model, data):
        seconds = min(vae_seconds, own_seconds(folder))
        return measure(model, data, samples, probe_images, seed, seconds)

    first = load(folders[0])
    rest = map(load, folders[1:])
    runs = [
        figures(folder, *loaded) for folder, loaded in zip(folders, itertools.chain([first], rest))
    ]
    if against:
        from keras_capsule_poe.evaluation import mcnemar

        other, theirs = load(control)
        if theirs.test.fingerprint != first[1].test.fingerprint:
            raise click.BadParameter(f"{control} has other test images.", param_hint="--against")
        runs[0]["against"] = mcnemar.against(first[0], other, first[1].test)
    found = tables(runs)
    for heading, note, columns, rows in found:
        click.echo(f"{heading}\n{note}\n" if note else heading)
        click.echo(text_table(columns, rows) + "\n" if rows else "")
    if json_path:
        from keras_capsule_poe.io.files import write_json

        write_json(json_path, runs[0] if len(runs) == 1 else {"runs": runs})
        click.echo(f"Wrote {json_path}")
    if page_path:
        write_report(page_path, *first, dataset, found, seed)
        click.echo(f"Wrote {page_path}")
