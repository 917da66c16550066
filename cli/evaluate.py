"""`capspoe evaluate`."""

from pathlib import Path

import click

from keras_capsule_poe.cli.common import (
    data_options,
    find_model,
    guarded,
    load_config,
    load_data,
    load_model,
    model_option,
    seed_option,
    with_tensorflow,
)


@click.command(short_help="Measure reconstruction, free energy, linear probes and samples.")
@model_option
@click.option("--probe-images", type=click.IntRange(min=10), default=10_000, show_default=True, help="Training images that the probes learn from.")
@click.option("--samples", type=click.IntRange(min=0), default=2_000, show_default=True, help="Single-capsule samples of each domain, judged by a classifier that is trained once and cached; 0: none.")
@click.option("--limit", type=click.IntRange(min=10), help="Use only the first N test images.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures to a file as well.")
@data_options
@seed_option
@guarded
@with_tensorflow
def evaluate(model_dir, probe_images, samples, limit, json_path, data_dir, manual_dir, seed):
    """Measure a trained model on its test images.

    Samples are judged by a small classifier of the same data set; `real` are training images
    in their place. The classifier is kept in CAPSPOE_CACHE, or ~/.cache/keras_capsule_poe.
    """
    folder = find_model(model_dir)
    data = load_data(load_config(folder), data_dir, manual_dir)
    model = load_model(folder)
    from keras_capsule_poe.evaluation import evaluate as measure
    from keras_capsule_poe.evaluation import sample_figures

    figures = measure(model, data, probe_images, limit, seed)
    _print_table(figures)
    if samples and data.train.labels is not None:
        figures["samples"] = sample_figures(model, data, samples, seed=seed)
        _print_samples(figures["samples"])
    if json_path:
        from keras_capsule_poe.files import write_json

        write_json(json_path, figures)
        click.echo(f"Wrote {json_path}")


_TITLES = {
    "reconstruction": "Relative squared error of reconstructions",
    "free_energy": "Free energy, nats",
    "probe": "Accuracy of a linear probe",
}


def _print_table(figures):
    for section, values in figures.items():
        click.echo(_TITLES[section])
        if not values:
            click.echo("  (the data set has no labels)")
        for name, value in values.items():
            click.echo(f"  {name.replace('_', ' '):18} {value:10.4f}")


def _print_samples(figures):
    columns = [name for name, values in figures.items() if isinstance(values, dict)]
    click.echo(f"Samples of single capsules (classifier: {figures['classifier_accuracy']:.3f} of test images)")
    click.echo(f"  {'':22}" + "".join(f"{name:>10}" for name in columns))
    for name in figures["visited"]:
        values = (figures[column].get(name) for column in columns)
        cells = ("-" if value is None else f"{value:.4g}" for value in values)
        click.echo(f"  {name.replace('_', ' '):22}" + "".join(f"{cell:>10}" for cell in cells))
