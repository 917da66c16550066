"""`capspoe compare`: trained models side by side."""

import shutil
from pathlib import Path

import click

from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.measure import (
    OF_SAMPLES,
    image_options,
    load_subject,
    measured,
    metric_options,
    show,
    write,
)
from keras_capsule_poe.cli.options import option
from keras_capsule_poe.cli.terminal import echo, guarded
from keras_capsule_poe.errors import listing


def compared(members, labels, measures):
    """Return the accuracies of classifiers and McNemar's tests, see `classification.comparison`.

    `members` are predictions by name.
    """
    from keras_capsule_poe.evaluation.classification import comparison

    if len(set(measures)) > 1:
        listed = ", ".join(f"{name}: {kind}" for name, kind in zip(members, measures))
        echo(f"There is no ensemble, since the outputs differ in kind ({listed}).", err=True)
    return comparison(members, labels, measures)


def _check_folders(folders):
    """Raise unless the model folders differ and belong to one data set."""
    places = [folder.resolve() for folder in folders]
    if twice := [folder for folder in places if places.count(folder) > 1]:
        raise click.UsageError(f"{twice[0]} is given twice. Give different models.")
    if len(folders) < 2:
        raise click.UsageError("Give two or more model folders. Received: one")


def _check_data(folders):
    """Raise unless the models of the folders were trained on one data set, split alike."""
    first, *others = (options.load_settings(folder) for folder in folders)
    for folder, other in zip(folders[1:], others):
        for name, what in (("dataset", "data set"), ("split", "split")):
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                raise click.UsageError(
                    f"{folder} has the {what} {theirs or 'none'}, not {mine or 'none'} as "
                    f"{folders[0]}. Test images must be the same; --recorded compares without them."
                )


def _check_images(subject, first, folder):
    """Return whether a model has the test images of the first one; raise if it should."""
    sizes = ["x".join(map(str, data.image_shape)) for data in (subject.data, first)]
    if sizes[0] != sizes[1]:
        raise click.UsageError(f"{subject.folder} takes images of {sizes[0]}, not {sizes[1]}.")
    if subject.data.test.fingerprint == first.test.fingerprint:
        return True
    seeds = [options.load_settings(each).seed for each in (subject.folder, folder)]
    if seeds[0] == seeds[1]:
        raise click.UsageError(f"{subject.folder} has other test images than {folder}.")
    return False


@click.command()
@click.argument(
    "models",
    metavar="MODEL_DIR...",
    nargs=-1,
    required=True,
    type=options.ModelPath(file_okay=False, path_type=Path),
)
@option(
    "--recorded",
    is_flag=True,
    help="Measure nothing: show what the folders hold, also of trainings that are not finished.",
)
@option("--verbose", "-v", is_flag=True, help="Show all metrics.")
@metric_options
@image_options
@options.json_option
@options.data_options
@options.seed_option
@guarded
def compare(
    models, recorded, verbose, limit, crops, pairs, json_path, seed, samples, baselines,
    vae_seconds, probe_images, **places,
):  # fmt: skip
    """Compare trained models, in a table with a column for each.

    MODEL_DIR is a model folder, a folder of model folders, such as that of a sweep, or the name of
    a pretrained model. Models that differ only in the seed share a column, with mean and standard
    deviation. The rows are the settings that differ, the metrics at the end of training, and those
    of `capspoe evaluate` on the test images. What `capspoe evaluate` has measured with the same
    options is not measured again.

    Classifiers also have the accuracy of their ensemble (the mean of their probabilities), and
    McNemar's test of each against the first one.
    """
    from keras_capsule_poe.runs import flat_metrics, records, run_folders

    _check_folders(models if len(models) > 1 else run_folders(models))
    folders = run_folders(models)
    found, more, evaluations = records(folders), {}, []
    if recorded:
        options.refuse_given(
            "has no effect with --recorded.", *OF_SAMPLES, "limit", "crops", "pairs"
        )
        for folder in folders:
            options.check_outputs(folder)
        echo(f"Models: {listing(map(options.called, folders))}", err=True, dim=True)
    else:
        folders = [options.find_model(folder) for folder in folders]
        _check_data(folders)
        subjects = (load_subject(folder, limit, crops, pairs, places) for folder in folders)
        names = [record["name"] for record in found]
        given = seed, samples, baselines, vae_seconds, probe_images
        evaluations, more = _evaluations(subjects, names, given, (limit, crops, pairs))
        for record, metrics in zip(found, evaluations):
            record["metrics"] = {**record["training"], **flat_metrics(metrics)}
    print_columns(found, verbose)
    if more:
        echo()
        show(more)
    runs = [{name: record[name] for name in record if name != "training"} for record in found]
    for run, metrics in zip(runs, evaluations):
        run["evaluation"] = metrics
    from keras_capsule_poe.evaluation.columns import columns, differing

    sides = columns(found)
    kinds = {"columns": sides, "differing": list(differing(sides)), "runs": runs}
    write(json_path, {**kinds, **more})


def print_columns(found, verbose=False, more="add --verbose, or --json FILE"):
    """Print a table of `runs.records`, as wide as the terminal; `more` says how to see the rest."""
    from keras_capsule_poe.evaluation.columns import columns, columns_text

    width = shutil.get_terminal_size().columns
    echo(columns_text(columns(found), width, verbose, more))


def _evaluations(subjects, names, given, some):
    """Return the metrics of each subject, and the comparison of their predictions, if there is one.

    `given` are options of metrics, `some` those that choose images.
    """
    from keras_capsule_poe.evaluation.classification import measure_of
    from keras_capsule_poe.runs import keep, kept

    found, members, measures, first, are_same = [], {}, [], None, True
    for subject, name in zip(subjects, names):
        first = first or (subject.data, subject.folder)
        is_same = _check_images(subject, *first)
        if not is_same:
            echo(f"{subject.folder} has other test images, by its seed.", err=True)
        are_same = are_same and is_same
        known = {} if any(some) else kept(subject.folder, list(given))
        found.append(known or measured(subject, *given, some[-1]))
        if not (known or any(some)):
            keep(subject.folder, found[-1], list(given))
        if subject.predictions_if_any is not None:
            members[name] = subject.predictions
            measures.append(measure_of(subject.model))
    if len(members) < len(names) or not are_same:
        return found, {}
    return found, compared(members, first[0].test.labels, measures)
