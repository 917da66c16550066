"""Results of a run as text."""

import re

import click


def show_results(folder, family):
    """Print the seconds and metrics of each stage, and the files to look at."""
    from rich.console import Console
    from rich.table import Table

    from keras_capsule_poe.serving.saved_model import newest_version

    table = Table(box=None, pad_edge=False)
    for title in ("stage", "seconds", "results"):
        table.add_column(title)
    stages = _done(folder, family)
    for stage, done in stages.items():
        figures = [
            f"{name} {value:.4g}"
            for name, value in done["metrics"].items()
            if isinstance(value, (int, float)) and name not in ("seconds", "epoch")
        ]
        table.add_row(stage, f"{done['seconds']:.0f}", ", ".join(figures))
    Console(soft_wrap=True).print(table)
    for stage, done in stages.items():
        for complaint in done["metrics"].get("complaints", ()):
            click.echo(f"{stage}: {complaint}")
    for stage in family.stages:
        names = [path.name for path in (folder / stage.name).glob("checkpoints/step-*")]
        steps = [int(found[1]) for name in names if (found := re.fullmatch("step-([0-9]+)", name))]
        if steps:
            click.echo(f"{stage.name}: not finished; its last checkpoint is of step {max(steps)}")
    for path in sorted(folder.glob("*.png")):
        click.echo(f"Look at {path}")
    version = newest_version(folder)
    if version and not (version / "saved_model.pb").exists():
        click.echo(f"{version} is no SavedModel any more: its saved_model.pb is missing")
    elif version:
        # An earlier SavedModel stays until the next one is complete.
        is_own = family.stages[-1].name in stages
        click.echo(f"SavedModel{'' if is_own else ' of an earlier training'}: {version}")


def _done(folder, family):
    from keras_capsule_poe.training import RunFolder

    run = RunFolder(folder)
    found = {stage.name: run.done(stage.name) for stage in family.stages}
    return {name: done for name, done in found.items() if done}
