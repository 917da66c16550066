"""Terminal output of `train` and `info`."""

import re

import click

from keras_capsule_poe.training import Reporter
from keras_capsule_poe.training.images import described
from keras_capsule_poe.training.plan import plan
from keras_capsule_poe.training.progress import duration


def show_plan(config, data, replicas=1):
    """Print the shapes, parameter counts, memory and time of a run."""
    planned = plan(config, data)
    views = f", familiar {config.split}s" if config.split else ""
    summary, *notes = described(data)
    click.echo(f"{config.dataset}{views}: {summary}")
    for line in notes:
        click.echo(f"  {line}")
    for name, shape in planned["shapes"].items():
        click.echo(f"  {name:18} {' x '.join(map(str, shape))}")
    for name, count in planned["parameters"].items():
        click.echo(f"  {name:18} {count:,} parameters")
    for name, stage in planned["stages"].items():
        line = f"  {name:18} {stage['epochs']} epochs, {stage['steps']} steps"
        if "seconds" in stage:
            line += f" of {1000 * stage['step_seconds']:,.0f} ms: {duration(stage['seconds'])}"
        click.echo(line)
    if replicas > 1:
        click.echo(f"{replicas} replicas share each batch; the times are those of one.")
    click.echo(
        f"About {duration(planned['seconds'])} of training steps, measured on a few images; "
        "encoding the images and exporting come on top. "
        f"Memory so far: {planned['peak_bytes'] / 1e9:.1f} GB."
    )


def reporter(config, log_dir=None, verbose=False):
    """Return a `Reporter` for standard output: a line per stage on a terminal."""
    return Reporter(2 if verbose else 1, log_dir=log_dir)


def show_results(folder, family, verbose=True):
    """Print a verdict in words, and the files to look at; if verbose, all metrics as well."""
    stages = _done(folder, family)
    if verbose:
        _show_metrics(stages)
    for line in family.verdict({name: done["metrics"] for name, done in stages.items()}):
        click.echo(line)
    _show_files(folder, family, stages)


def _show_metrics(stages):
    """Print the seconds and metrics of each stage."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("stage", "seconds", "results"):
        table.add_column(title)
    for stage, done in stages.items():
        figures = [
            f"{name} {value:.4g}"
            for name, value in done["metrics"].items()
            if isinstance(value, (int, float)) and name not in ("seconds", "epoch")
        ]
        table.add_row(stage, f"{done['seconds']:.0f}", ", ".join(figures))
    Console(soft_wrap=True).print(table)


def _show_files(folder, family, stages):
    """Print warnings of stages, unfinished stages, and the files to look at."""
    from keras_capsule_poe.serving import newest_version

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
        click.echo(f"{version} is incomplete: its saved_model.pb is missing")
    elif version:
        # An earlier SavedModel stays until the next one is complete.
        is_own = family.stages[-1].name in stages
        click.echo(f"SavedModel{'' if is_own else ' of an earlier training'}: {version}")


def _done(folder, family):
    from keras_capsule_poe.training import RunFolder

    run = RunFolder(folder)
    found = {stage.name: run.done(stage.name) for stage in family.stages}
    return {name: done for name, done in found.items() if done}
