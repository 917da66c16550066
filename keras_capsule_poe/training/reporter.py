"""Progress reports of training; the base class prints lines."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Seconds of training that are worth a warning beforehand, and of steps before a rate is known.
LONG, SETTLED = 600.0, 5.0
# Metrics that lines of progress show, with their names and meanings; the first two are taken.
SHOWN = {
    "held_out_relative_error": ("held-out error", "0 is perfect, 1 is no better than the mean"),
    "held_out_accuracy": ("held-out accuracy", "1 is perfect"),
    "accuracy": ("accuracy", "1 is perfect"),
    "loss": ("loss", "lower is better"),
}


def two(metrics):
    """Return (name, value, meaning) of at most two metrics that lines of progress show."""
    found = [(*SHOWN[name], metrics[name]) for name in SHOWN if metrics.get(name) is not None]
    return [(name, value, meaning) for name, meaning, value in found[:2]]


def duration(seconds):
    """Return seconds as text: `12 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Reporter:
    """Prints a line when a stage starts and ends, after each epoch, and after a long silence.

    Subclass it to show progress in another way.

    Args:
        write: Function of one line of text.
        log_dir: Folder for TensorBoard logs, or None.
        silence: float, seconds without output after which a line shows the progress.
        brief: Boolean. Whether lines show two metrics instead of all.

    Example:

    >>> reporter = Reporter(write=print)
    >>> reporter.epoch("encoder", 1, {"loss": 0.25, "seconds": 3.0})
    encoder: epoch 1: loss 0.25  seconds 3
    """

    def __init__(
        self,
        write: Callable[[str], Any] = print,
        log_dir: str | Path | None = None,
        silence: float = 25.0,
        brief: bool = False,
    ) -> None:
        self.write = write
        self.log_dir = log_dir
        self.silence = silence
        self.brief = brief
        self.batch_size = None
        self._stage, self._where, self._pulse = None, None, None
        self._estimated = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def stage_began(self, stage):
        """Report that a stage begins, before it loads anything."""
        self._stage, self._where = stage, None
        self._began = self._last = time.perf_counter()
        self._pulse = threading.Event()
        threading.Thread(target=self._beat, args=(self._pulse,), daemon=True).start()

    def stage_started(self, stage, epochs, steps, first_step=0):
        """Report that training starts, or resumes after `first_step` steps."""
        self._length = epochs, steps
        self._counted, self._since = first_step, time.perf_counter()
        self._estimated = False
        if first_step:
            self.say(f"{stage}: resumed after step {first_step} of {epochs * steps}")
        else:
            plural = "" if epochs == 1 else "s"
            self.say(f"{stage}: {epochs} epoch{plural} of {steps} steps")

    def stage_skipped(self, stage):
        """Report that a stage was finished before."""
        self.say(f"{stage}: done before")

    def stage_ended(self):
        """Stop the progress lines of a stage, also after an error."""
        if self._pulse:
            self._pulse.set()
        self._pulse = None

    def step(self, stage, epoch, step, logs):
        """Record a step, `epoch` counted from 0, and the running metrics `logs` of the epoch."""
        self._where = epoch, step, logs["loss"]
        seconds = time.perf_counter() - self._since
        if not self._estimated and seconds > SETTLED:
            self._estimated = True
            self._estimate(stage, epoch, step, seconds)

    def _estimate(self, stage, epoch, step, seconds):
        """Report how long the stage takes, if that is long."""
        epochs, steps = self._length
        done = epoch * steps + step
        whole = seconds * (epochs * steps - self._counted) / max(done - self._counted, 1)
        if whole > LONG:
            self.say(f"{stage}: about {duration(whole)} at this speed; it can be interrupted")

    def epoch(self, stage, epoch, metrics):
        """Report the metrics of an epoch, counted from 1."""
        shown = {name: value for name, value, _ in two(metrics)} if self.brief else metrics
        self.say(f"{stage}: epoch {epoch}: {describe(shown)}")

    def stage_finished(self, stage, seconds):
        """Report that a stage is finished."""
        self.say(f"{stage}: finished in {seconds:.0f} s")

    def images(self, lines):
        """Show the lines on the images of a run, the first one their numbers."""
        for line in lines:
            self.note(line)

    def note(self, line):
        """Report a message for the user."""
        self.say(line)

    def callbacks(self, stage):
        """Return further Keras callbacks for a stage: TensorBoard if `log_dir` is set."""
        if self.log_dir is None:
            return []
        import keras

        class TensorBoard(keras.callbacks.TensorBoard):
            def on_epoch_end(self, epoch, logs=None):
                # Keras would write an epoch only if its last step is a logged one.
                with self.summary.record_if(True):
                    super().on_epoch_end(epoch, logs)

        return [TensorBoard(f"{self.log_dir}/{stage}", update_freq=10)]

    def say(self, line):
        """Write a line."""
        self._last = time.perf_counter()
        self.write(line)

    def progress(self):
        """Return a line about the progress of the current stage."""
        seconds = time.perf_counter() - self._began
        where = self._where
        if where is None:
            return f"{self._stage}: working for {seconds:.0f} s"
        epoch, step, loss = where
        epochs, steps = self._length
        done = epoch * steps + step
        if done == epochs * steps:
            return f"{self._stage}: trained, working for {seconds:.0f} s"
        rate = (done - self._counted) / max(time.perf_counter() - self._since, 1e-9)
        pace = (
            f"{rate * self.batch_size:.0f} images/s" if self.batch_size else f"{rate:.2g} steps/s"
        )
        return f"{self._stage}: step {done} of {epochs * steps}, {pace}, loss {loss:.4g}"

    def _beat(self, ended):
        while not ended.wait(min(1.0, self.silence)):
            if time.perf_counter() - self._last >= self.silence:
                # If the output is closed, the main thread ends training with a message.
                with contextlib.suppress(OSError, ValueError):
                    self.say(self.progress())


def describe(metrics):
    """Return metrics as text: `loss 0.123  seconds 4.56`."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
