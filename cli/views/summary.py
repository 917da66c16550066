"""Results of a run as text."""

import click

from keras_capsule_poe.io.files import read_json
from keras_capsule_poe.training import STAGES


def stage_metrics(folder):
    """What each finished stage measured, as {stage: metrics}."""
    return {stage: done["metrics"] for stage, done in _done(folder).items()}


def show_results(folder):
    """Prints seconds and figures of each stage, and the files to look at."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("stage", "seconds", "results"):
        table.add_column(title)
    for stage, done in _done(folder).items():
        figures = [
            f"{name} {value:.4g}"
            for name, value in done["metrics"].items()
            if isinstance(value, float) and name != "seconds"
        ]
        table.add_row(stage, f"{done['seconds']:.0f}", ", ".join(figures))
    Console(soft_wrap=True).print(table)
    for name in ("samples-complete.png", "samples-visited.png", "reconstructions.png"):
        if (folder / name).exists():
            click.echo(f"Look at {folder / name}")
    versions = sorted((p for p in folder.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    if versions:
        click.echo(f"SavedModel: {versions[-1]}")


def _done(folder):
    paths = {stage: folder / stage / "done.json" for stage in STAGES}
    return {stage: read_json(path) for stage, path in paths.items() if path.exists()}
