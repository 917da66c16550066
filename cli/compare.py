"""`capspoe compare`."""

from pathlib import Path

import click

from keras_capsule_poe.cli import metrics
from keras_capsule_poe.cli.models import find_model
from keras_capsule_poe.cli.options import NamedPath, data_options, seed_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow

OF_MEAN = ("samples", "baselines", "vae_seconds", "probe_images")


@click.command()
@click.argument(
    "models",
    metavar="MODEL_DIR MODEL_DIR...",
    nargs=-1,
    required=True,
    type=NamedPath(file_okay=False, exists=True, path_type=Path),
)
@click.option(
    "--mean",
    is_flag=True,
    help="Measure each model as `capspoe evaluate` does, and show mean and standard deviation. The "
    "models must be of one family, for instance trained with several seeds.",
)
@metrics.metric_options
@metrics.image_options
@metrics.json_option
@data_options
@seed_option
@guarded
@with_tensorflow
def compare(
    models, mean, limit, crops, pairs, json_path, seed,
    samples, baselines, vae_seconds, probe_images, **places,
):  # fmt: skip
    """Compare two or more trained models on the same test images.

    Classifiers: the accuracy of each model and of their ensemble (the mean of their
    probabilities), and McNemar's test of each against the first one.

    Models that generate images, or any models with --mean: mean and standard deviation of the
    metrics of `capspoe evaluate` over the models. This takes as long as evaluating each model.
    """
    if len(models) < 2:
        raise click.UsageError("Give two or more model folders. Received: one")
    folders = [find_model(folder) for folder in models]
    metrics.check_folders(folders, one_kind=mean)
    subjects = (metrics.load_subject(folder, limit, crops, pairs, places) for folder in folders)
    first = next(subjects)
    if not mean and callable(getattr(first.model, "classify", None)):
        metrics.refuse_given("needs --mean for classifiers", *OF_MEAN)
        found = metrics.compared([first, *subjects])
        metrics.show([found])
        return metrics.write(json_path, found)
    metrics.check_folders(folders, one_kind=True)
    options = (seed, samples, baselines, vae_seconds, probe_images, pairs)
    runs = [metrics.measured(first, *options)]
    runs += [metrics.measured(subject, *options) for subject in subjects]
    metrics.show(runs)
    metrics.write(json_path, {"runs": runs})
