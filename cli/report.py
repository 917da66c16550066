"""`capspoe report`."""

from pathlib import Path

import click

from keras_capsule_poe.cli import metrics
from keras_capsule_poe.cli.models import find_model, load_config, load_history
from keras_capsule_poe.cli.options import (
    NamedPath,
    data_options,
    model_option,
    out_option,
    seed_option,
)
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow


@click.command()
@out_option("report.html", (".html",))
@model_option
@click.option(
    "--metrics",
    "metrics_path",
    type=NamedPath(exists=True, dir_okay=False, path_type=Path),
    help="JSON file of `capspoe evaluate --json`, whose tables the page then shows.",
)
@metrics.image_options
@data_options
@seed_option
@guarded
@with_tensorflow
def report(out, model_dir, metrics_path, limit, crops, pairs, seed, **places):
    """Write a page that shows a trained model: samples, reconstructions and each capsule.

    The page is one HTML file that needs no network. For a classifier it shows accuracy,
    calibration and the most confident errors. `capspoe evaluate --json FILE` measures a model
    that generates images, which takes minutes; --metrics FILE adds its tables to the page.
    """
    from keras_capsule_poe.evaluation.report import is_generative, measure, tables
    from keras_capsule_poe.io.records import read_json

    subject = metrics.load_subject(find_model(model_dir), limit, crops, pairs, places)
    found = read_json(metrics_path) if metrics_path else {}
    if not found and not is_generative(subject.model):
        found = measure(subject.model, subject.data, found=subject.predictions_if_any)
    try:
        shown = tables([found])
    except (KeyError, AttributeError, TypeError) as error:
        raise click.BadParameter(
            f"{metrics_path} does not hold the metrics of one model. Write it with `capspoe "
            "evaluate --json`.",
            param_hint="--metrics",
        ) from error
    write_page(out, subject, shown, seed)


def write_page(path, subject, tables, seed):
    """Write the page of a `Subject`, and say so."""
    from keras_capsule_poe.evaluation.model_page import write_report

    write_report(
        path,
        subject.model,
        subject.data,
        load_config(subject.folder).dataset,
        tables,
        seed,
        subject.predictions_if_any,
        load_history(subject.folder, subject.model),
    )
    click.echo(f"Wrote {path}")
