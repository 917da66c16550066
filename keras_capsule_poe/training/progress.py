"""Progress of training: a live line in a terminal or notebook, else lines of text."""

import contextlib
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io.text import for_terminal, writable

# Seconds of training that are worth an announcement, and of steps before their rate is known.
LONG, SETTLED = 600.0, 5.0
# Seconds between two updates of a live line, and the width of its bar.
_EVERY, _BAR = 0.3, 12
# Metrics that a short line shows, with their names and meanings; the first two are taken.
SHOWN = {
    "val_relative_error": ("held-out error", "0 is perfect, 1 is no better than the mean"),
    "val_accuracy": ("held-out accuracy", "1 is perfect"),
    "accuracy": ("accuracy", "1 is perfect"),
    "loss": ("loss", "lower is better"),
}


def duration(seconds):
    """Return seconds as text: `12 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Reporter:
    """Progress of a training run.

    A terminal or a notebook shows one live line for each stage. Without them there is a line of
    text for each stage, and more lines in a long silence, ever more rarely. Subclass it to show
    progress in another way.

    Args:
        verbose: `0` silent, `1` or `"auto"` one line for each stage, `2` a line for each epoch.
        write: Function of one line of text; None: a live line if there can be one, else `print`.
        log_dir: Folder for TensorBoard logs, or None.
        callbacks: List of Keras callbacks that each stage gets.
        notes: Boolean. Whether less important messages are shown with `verbose=1`, too.
        silence: float, seconds without output after which a line shows the progress. It doubles
            with each of these lines of a stage, to at most ten minutes.

    Attributes:
        stages: Dict from the names of all stages, in order, to their training steps. The engine
            sets it, for the number of a stage and the time left of the whole.
        batch_size: int, images in a step, set by the engine; None: unknown.
        resumes: str, a sentence on how an interrupted training goes on, or "".

    It is a context manager of the whole run: leaving it shows how long that took.

    Example:

    >>> reporter = Reporter()
    >>> reporter.epoch("encoder", 1, {"loss": 0.25, "seconds": 3.0})
    encoder: epoch 1: loss 0.25  seconds 3
    """

    def __init__(
        self,
        verbose: int | str = 2,
        write: Callable[[str], Any] | None = None,
        log_dir: str | Path | None = None,
        callbacks: Sequence[Any] = (),
        notes: bool = True,
        silence: float = 25.0,
    ) -> None:
        place = None if write else _place()
        if verbose not in (0, 1, 2, "auto"):
            raise BadUse(f"`verbose` must be 0, 1, 2 or 'auto'. Received: verbose={verbose!r}")
        verbose = 1 if verbose == "auto" else verbose
        # Unless it is flushed, a file has a line only long after.
        self.write = write or (lambda line: print(for_terminal(writable(line)), flush=True))
        self.verbose, self.silence = verbose, silence
        # A single one, too, as in Keras.
        is_list = isinstance(callbacks, (list, tuple))
        self.own_callbacks = list(callbacks) if is_list else [callbacks]
        self.log_dir, self.notes = log_dir, notes
        self.stages: dict[str, int] = {}
        self.batch_size = None
        self.resumes = "You can interrupt and resume at any time."
        self._live = place() if place and verbose == 1 else None
        self._announced, self._start, self._last = False, time.perf_counter(), 0.0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        # Of several workers, one has stages.
        if not error[0] and self.stages:
            self._say(f"Trained in {duration(time.perf_counter() - self._start)}")

    @contextlib.contextmanager
    def stage(self, name):
        """Context of the work of a stage, or of other work, which has no line at its end."""
        self._stage, self._done, self._metrics = name, 0, {}
        self._began = self._last = time.perf_counter()
        self._pause, ended = self.silence, threading.Event()
        pulse = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        with self._live or contextlib.nullcontext():
            pulse.start()
            try:
                yield
            finally:
                ended.set()
                pulse.join()
        if name in self.stages:
            self._say(self._summary(time.perf_counter() - self._began))

    def stage_skipped(self, stage):
        """Report that a stage was finished before."""
        self.note(f"{self._title(stage)} done before")

    def stage_started(self, stage, epochs, steps, first_step=0):
        """Report that training starts, or resumes after `first_step` steps."""
        self._steps, self._length = steps, epochs * steps
        self._first, self._since = first_step, time.perf_counter()
        start = f"{epochs} epoch{'' if epochs == 1 else 's'} of {steps} steps"
        if first_step:
            start = f"resumed after step {first_step} of {self._length}"
        if self.verbose == 2:
            self._say(f"{stage}: {start}")

    def step(self, stage, epoch, step, logs):
        """Record a step, `epoch` counted from 0, and the running metrics `logs` of the epoch."""
        self._loss, self._done = float(logs["loss"]), epoch * self._steps + step
        if not self._announced and time.perf_counter() - self._since > SETTLED:
            self._announced = True
            whole = self._seconds_left()[1]
            if whole > LONG:
                self._say(f"About {duration(whole)} in all. {self.resumes}".rstrip())

    def epoch(self, stage, epoch, metrics):
        """Report the metrics of an epoch, counted from 1."""
        self._metrics = metrics
        if self.verbose == 2:
            shown = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            self._say(f"{stage}: epoch {epoch}: {shown}")

    def note(self, line, important=False):
        """Report a message for the user."""
        if self.verbose == 2 or important or self.notes:
            self._say(line)

    def callbacks(self, stage):
        """Return Keras callbacks for a stage: the user's, and TensorBoard if `log_dir` is set.

        The training gives TensorBoard a folder for each stage, and other callbacks what they need.
        """
        if self.log_dir is None:
            return self.own_callbacks
        import keras

        board = keras.callbacks.TensorBoard(str(self.log_dir), update_freq=10)
        return [board, *self.own_callbacks]

    def _say(self, line):
        """Show a line that stays."""
        self._last = time.perf_counter()
        if self._live:
            self._live.print(line)
        elif self.verbose:
            self.write(line)

    def _beat(self, ended):
        """Update the live line, or write a line after a long silence, until the stage ends."""
        while not ended.wait(_EVERY if self._live else min(1.0, self.silence)):
            # If the output is closed, the main thread ends training with a message.
            with contextlib.suppress(OSError, ValueError):
                if self._live:
                    self._live.update(self._line())
                elif time.perf_counter() - self._last >= self._pause:
                    self._say(self._line())
                    self._pause = min(2 * self._pause, max(LONG, self.silence))

    def _title(self, stage):
        """Return the start of the lines of a stage: with its number, or short in many lines."""
        if self.verbose == 2 or stage not in self.stages:
            return f"{stage}:"
        names = list(self.stages)
        return f"[{names.index(stage) + 1}/{len(names)}] {stage:{max(map(len, names))}}"

    def _seconds_left(self):
        """Return the estimated seconds left of the stage and of the run, from the steps so far."""
        pace = (time.perf_counter() - self._since) / max(self._done - self._first, 1)
        left = pace * (self._length - self._done)
        names = list(self.stages)
        later = names[names.index(self._stage) + 1 :] if self._stage in names else ()
        # Steps of later stages are taken to last as long as those of this stage.
        return left, left + pace * sum(self.stages[name] for name in later)

    def _line(self):
        """Return a line about the work so far; of a live one the end may be cut off."""
        title, now = self._title(self._stage), time.perf_counter()
        if not self._done or self._done == self._length:
            trained = "trained, " if self._done else ""
            return f"{title} {trained}working for {duration(now - self._began)}"
        rate = (self._done - self._first) / max(now - self._since, 1e-9)
        size = self.batch_size
        pace = f"{rate * size:.0f} images/s" if size else f"{rate:.3g} steps/s"
        if not self._live:
            return f"{title} step {self._done} of {self._length}, {pace}, loss {self._loss:.4g}"
        left, whole = map(duration, self._seconds_left())
        bar = "█" * round(_BAR * self._done / self._length)
        shown = _named({**self._metrics, "loss": self._loss})[0]
        return f"{title} {left} left, all {whole} {bar:·<{_BAR}} {shown}, {pace}"

    def _summary(self, seconds):
        """Return the line of a finished stage with two metrics, explained if that fits."""
        shown, meaning = _named(self._metrics)
        line = f"{self._title(self._stage)} {duration(seconds):>6}  {shown}".rstrip()
        explained = f"{line} ({meaning})" if meaning else line
        return explained if len(explained) < shutil.get_terminal_size((120, 24)).columns else line


class _Terminal:
    """Live line at the end of a terminal."""

    def __init__(self):
        from rich.console import Console
        from rich.live import Live

        # It is known to be a terminal, whatever the environment says.
        console = Console(force_terminal=True, force_jupyter=False, highlight=False)
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self):
        self.live.start()

    def __exit__(self, *error):
        self.live.stop()

    def update(self, text):
        from rich.text import Text

        self.live.update(Text(writable(text), no_wrap=True, overflow="crop"), refresh=True)

    def print(self, line):
        line = for_terminal(writable(line))
        self.live.console.print(line, markup=False, soft_wrap=True)


class _Notebook(contextlib.AbstractContextManager):
    """One output of a notebook's cell, which is updated."""

    def __init__(self):
        self.lines, self.output = [], None

    def __exit__(self, *error):
        self.update()

    def update(self, *more):
        from IPython.display import display

        shown = {"text/plain": "\n".join([*self.lines, *more])}
        if self.output:
            self.output.update(shown, raw=True)
        else:
            self.output = display(shown, raw=True, display_id=True)

    def print(self, line):
        self.lines.append(line)
        self.update()


def _place():
    """Return the class of live lines on the standard output, or None."""
    if "ipykernel" in sys.modules:
        return _Notebook
    return _Terminal if sys.stdout is not None and sys.stdout.isatty() else None


def _named(metrics):
    """Return at most two metrics that short lines show as text, and the meaning of the first."""
    found = [(*SHOWN[name], metrics[name]) for name in SHOWN if metrics.get(name) is not None]
    shown = ", ".join(f"{name} {value:.3g}" for name, _, value in found[:2])
    return shown, found[0][1] if found else ""


@contextlib.contextmanager
def quiet():
    """Context without TensorFlow's warnings and notes, which are for its developers."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)
