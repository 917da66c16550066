"""Progress of a whole training in one line, for notebooks and terminals."""

import contextlib
import logging
import sys
import time

from keras_capsule_poe.training.reporter import Reporter

# Seconds between two updates of the line.
_EVERY = 0.3
_WIDTH = 100


class ProgressLine(Reporter):
    """Reporter with one line that names the stage, its progress and the time left.

    Args:
        stages: List of str, the names of all stages in order.
        verbose: `0` silent, `1` one line, `2` a line per epoch, or `"auto"`.
        callbacks: List of Keras callbacks that each stage gets.

    Attributes:
        steps: Dict from stages to their training steps, for the time left of the whole.

    It is a context manager: leaving it ends the line.
    """

    def __init__(self, stages, verbose="auto", callbacks=()):
        if verbose == "auto":
            verbose = 1 if sys.stdout is not None and _is_interactive() else 2
        if verbose not in (0, 1, 2):
            raise ValueError(f"`verbose` must be 0, 1, 2 or 'auto'. Received: verbose={verbose!r}")
        super().__init__(write=self._write)
        self.stages, self.verbose, self.own_callbacks = list(stages), verbose, list(callbacks)
        self.steps = {}
        self._shown, self._next = "", 0.0
        self._start = time.perf_counter()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.verbose == 1 and self._shown:
            seconds = time.perf_counter() - self._start
            self._draw("" if error[0] else f"Trained in {seconds:.0f} s")
            sys.stdout.write("\n")
            self._shown = ""

    def stage_began(self, stage):
        super().stage_began(stage)
        self._show(f"{self._title(stage)}")

    def step(self, stage, epoch, step, logs):
        super().step(stage, epoch, step, logs)
        now = time.perf_counter()
        if now < self._next or self.verbose != 1:
            return
        epochs, steps = self._length
        done, whole = epoch * steps + step, epochs * steps
        rate = (done - self._counted) / max(now - self._since, 1e-9)
        left = (whole - done) / max(rate, 1e-9)
        later = sum(self.steps.get(name, 0) for name in self.stages[self.stages.index(stage) + 1 :])
        # Steps of later stages are taken to last as long as those of this stage.
        in_all = left + later / max(rate, 1e-9)
        bar = "█" * round(12 * done / whole)
        self._show(
            f"{self._title(stage)} {bar:·<12} epoch {epoch + 1}/{epochs}, "
            f"loss {float(logs['loss']):.4f}, {duration(left)} left, all {duration(in_all)}"
        )

    def epoch(self, stage, epoch, metrics):
        if self.verbose == 2:
            super().epoch(stage, epoch, metrics)

    def stage_started(self, stage, epochs, steps, first_step=0):
        self._length = epochs, steps
        self._counted, self._since = first_step, time.perf_counter()
        if self.verbose == 2:
            super().stage_started(stage, epochs, steps, first_step)

    def stage_skipped(self, stage):
        if self.verbose == 2:
            super().stage_skipped(stage)

    def stage_finished(self, stage, seconds):
        if self.verbose == 2:
            super().stage_finished(stage, seconds)

    def note(self, line):
        # Warnings of stages become Python warnings after training.
        if self.verbose == 2:
            super().note(line)

    def images(self, lines):
        if self.verbose == 1:
            # Classes and what was left out; the numbers of images go without saying.
            for line in lines[1:]:
                self._draw("")
                sys.stdout.write(f"\r{line}\n")
        else:
            super().images(lines)

    def callbacks(self, stage):
        return self.own_callbacks

    def progress(self):
        if self.verbose == 1 and self._where is None:
            self._show(f"{self._title(self._stage)}")
        return super().progress()

    def _title(self, stage):
        if stage not in self.stages:
            return "reading images"
        return f"stage {self.stages.index(stage) + 1} of {len(self.stages)}: {stage:12}"

    def _show(self, text):
        if self.verbose == 1:
            self._next = time.perf_counter() + _EVERY
            self._draw(text)

    def _draw(self, text):
        text = text[:_WIDTH]
        sys.stdout.write(f"\r{text}{' ' * (len(self._shown) - len(text))}")
        sys.stdout.flush()
        self._shown = text

    def _write(self, line):
        if self.verbose == 2:
            print(line)


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


def duration(seconds):
    """Return seconds as text: `12 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _is_interactive():
    return sys.stdout.isatty() or "ipykernel" in sys.modules
