"""Progress of training: bars on a terminal, lines elsewhere."""

import contextlib
import sys

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from keras_capsule_poe.training import Reporter
from keras_capsule_poe.training.reporter import describe


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
