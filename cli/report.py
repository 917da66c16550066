"""`capspoe report`."""

import datetime
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
from keras_capsule_poe.cli.terminal import Working, guarded, with_tensorflow


@click.command()
@out_option("report.html", (".html",))
@model_option
@click.option(
    "--metrics",
    "metrics_path",
    type=NamedPath(exists=True, dir_okay=False, path_type=Path),
    help="JSON file of `capspoe evaluate --json`, whose tables the page then shows.  [default: "
    "those of the last `capspoe evaluate` of the model]",
)
@metrics.image_options
@data_options
@seed_option
@guarded
@with_tensorflow
def report(out, model_dir, metrics_path, limit, crops, pairs, seed, **places):
    """Write a page that shows a trained model: samples, reconstructions and each capsule.

    The page is one HTML file that needs no internet connection. For a classifier it shows
    accuracy, calibration and the most confident errors. If `capspoe evaluate` has measured the
    model, which takes minutes, the page has its tables as well.
    """
    from keras_capsule_poe.evaluation.report import is_generative, measure, tables
    from keras_capsule_poe.io.records import read_json

    subject = metrics.load_subject(find_model(model_dir), limit, crops, pairs, places)
    found = read_json(metrics_path) if metrics_path else metrics.kept(subject.folder)
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
    from keras_capsule_poe.evaluation.page import write_report

    with Working("drawing the page"):
        write_report(
            path,
            subject.model,
            subject.data,
            load_config(subject.folder).dataset,
            tables,
            seed,
            subject.predictions_if_any,
            load_history(subject.folder, subject.model),
            facts(subject),
        )
    click.echo(f"Wrote {path}")


def facts(subject):
    """Return pairs of name and value for the header of the page."""
    from keras_capsule_poe import __version__
    from keras_capsule_poe.training import RunFolder
    from keras_capsule_poe.training.progress import duration

    config, folder = load_config(subject.folder), RunFolder(subject.folder)
    done = [folder.done(stage.name) for stage in config.stages]
    seconds = sum(each["seconds"] for each in done if each)
    made = datetime.date.fromtimestamp((subject.folder / "model.keras").stat().st_mtime)
    data, model = subject.data, subject.model
    size = "x".join(map(str, model.image_shape))
    return [
        ("model", f"{model.TITLE}, {model.count_params():,} parameters"),
        ("preset", config.recipe),
        ("data", f"{config.dataset}: {len(data.train):,} training images of {size}"),
        ("test images", f"{len(data.test):,}"),
        ("seed", config.seed),
        ("training", duration(seconds)),
        ("file of", made),
        ("version", __version__),
        ("folder", subject.folder),
    ]
