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


@click.command(short_help="Measure reconstruction, free energy and linear probes.")
@model_option
@click.option("--probe-images", type=click.IntRange(min=10), default=10_000, show_default=True, help="Training images that the probes learn from.")
@click.option("--limit", type=click.IntRange(min=10), help="Use only the first N test images.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures to a file as well.")
@data_options
@seed_option
@guarded
@with_tensorflow
def evaluate(model_dir, probe_images, limit, json_path, data_dir, manual_dir, seed):
    """Measure a trained model on its test images."""
    folder = find_model(model_dir)
    data = load_data(load_config(folder), data_dir, manual_dir)
    model = load_model(folder)
    from keras_capsule_poe.evaluation import evaluate as measure

    figures = measure(model, data, probe_images, limit, seed)
    _print_table(figures)
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
