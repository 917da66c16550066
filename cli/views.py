"""Terminal output of `train` and `info`."""

import contextlib
import re
import sys

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from keras_capsule_poe.training import Reporter
from keras_capsule_poe.training.images import described
from keras_capsule_poe.training.plan import plan
from keras_capsule_poe.training.reporter import describe


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
            line += f" of {1000 * stage['step_seconds']:,.0f} ms: {_duration(stage['seconds'])}"
        click.echo(line)
    if replicas > 1:
        click.echo(f"{replicas} replicas share each batch; the times are those of one.")
    click.echo(
        f"About {_duration(planned['seconds'])} of training steps, measured on a few images; "
        "encoding the images and exporting come on top. "
        f"Memory so far: {planned['peak_bytes'] / 1e9:.1f} GB."
    )


def _duration(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@contextlib.contextmanager
def reporter(log_dir=None):
    """Context that gives a `Reporter` for standard output."""
    if sys.stdout is None or not sys.stdout.isatty():
        yield Reporter(click.echo, log_dir)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
    )
    console = Console()
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bars(
            progress, lambda line: console.print(line, highlight=False, markup=False), log_dir
        )


class _Bars(Reporter):
    """Reporter with a bar for the current epoch and a line for each finished one."""

    SHOWN = ("loss", "free_energy", "update_size")

    def __init__(self, progress, write, log_dir):
        super().__init__(write, log_dir)
        self.bars = progress
        self.task = None

    def step(self, stage, epoch, step, logs):
        super().step(stage, epoch, step, logs)
        if self.task is None:
            steps = self._length[1]
            self.task = self.bars.add_task(f"{stage} {epoch + 1}", total=steps, shown="")
        shown = {name: logs[name] for name in self.SHOWN if name in logs}
        self.bars.update(self.task, completed=step, shown=describe(shown))

    def epoch(self, stage, epoch, metrics):
        if self.task is not None:
            self.bars.remove_task(self.task)
            self.task = None
        super().epoch(stage, epoch, metrics)


def show_results(folder, family):
    """Print the seconds and metrics of each stage, and the files to look at."""
    from rich.console import Console
    from rich.table import Table

    from keras_capsule_poe.serving import newest_version

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
