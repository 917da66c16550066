"""`capspoe evaluate`."""

from pathlib import Path

import click

from keras_capsule_poe.cli import metrics
from keras_capsule_poe.cli.models import find_model
from keras_capsule_poe.cli.options import NamedPath, data_options, model_option, seed_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow

# Former options, and the commands that do their work now.
FORMER = {
    "also": "capspoe compare --mean MODEL_DIR MODEL_DIR ...",
    "against": "capspoe compare MODEL_DIR MODEL_DIR",
    "ensemble": "capspoe compare MODEL_DIR MODEL_DIR ...",
    "page": "capspoe report --metrics FILE",
}


def _former_options(function):
    folder = NamedPath(file_okay=False, exists=True, path_type=Path)
    page = NamedPath(dir_okay=False, path_type=Path)
    for option in (
        click.option("--also", multiple=True, type=folder, hidden=True),
        click.option("--against", type=folder, hidden=True),
        click.option("--ensemble", multiple=True, type=folder, hidden=True),
        click.option("--page", type=page, hidden=True),
    ):
        function = option(function)
    return function


@click.command()
@model_option
@metrics.metric_options
@metrics.image_options
@metrics.json_option
@data_options
@seed_option
@_former_options
@guarded
@with_tensorflow
def evaluate(
    model_dir, limit, crops, pairs, json_path, seed, also, against, ensemble, page,
    samples, baselines, vae_seconds, probe_images, **places,
):  # fmt: skip
    """Measure a trained model on its test images.

    For a classifier: accuracy, errors of each class and calibration. If it was trained on
    familiar viewpoints only, errors on familiar and on novel viewpoints are shown separately.

    For a model that generates images: reconstruction, linear probes, clustering and samples. A
    small classifier of the same data set evaluates the samples, and those of baselines that are
    decoded in the same way (see --baselines). It is cached in CAPSPOE_CACHE, or in
    ~/.cache/keras_capsule_poe.

    `capspoe compare` compares several models, `capspoe report` writes a page with pictures.
    """
    given = {"also": also, "against": against, "ensemble": ensemble, "page": page}
    for name in (name for name, value in given.items() if value):
        click.echo(f"evaluate --{name} is deprecated: use {FORMER[name]}", err=True)
    others = [*([against] if against else []), *ensemble]
    if also and others:
        raise click.UsageError("--also cannot be combined with --against or --ensemble.")
    if also and page:
        raise click.UsageError("--also cannot be combined with --page.")
    if json_path and page and json_path.resolve() == page.resolve():
        raise click.BadParameter(f"--json writes {json_path}, too.", param_hint="--page")
    folder = find_model(model_dir)
    metrics.check_folders([folder, *also, *others], one_kind=bool(also))
    options = (seed, samples, baselines, vae_seconds, probe_images, pairs)
    load = (limit, crops, pairs, places)
    subject = metrics.load_subject(folder, *load)
    more = [metrics.load_subject(find_model(other), *load) for other in others]
    comparison = metrics.compared([subject, *more]) if more else {}
    runs = [metrics.measured(subject, *options) | comparison]
    for other in also:
        runs.append(metrics.measured(metrics.load_subject(find_model(other), *load), *options))
    shown = metrics.show(runs)
    if not (limit or crops or pairs or others or also):
        metrics.keep(folder, runs[0])
    metrics.write(json_path, runs[0] if len(runs) == 1 else {"runs": runs})
    if page:
        from keras_capsule_poe.cli.report import write_page

        write_page(page, subject, shown, seed)
