"""Progress of a whole training in one line per stage, for notebooks and terminals."""

import contextlib
import logging
import shutil
import sys
import time

from keras_capsule_poe.training.reporter import LONG, SETTLED, Reporter, duration, two

# Seconds between two updates of the line.
_EVERY = 0.3
# Narrowest terminal that is served, and the width of a notebook's output.
NARROWEST, _NOTEBOOK = 40, 80
_BAR = 12


class ProgressLine(Reporter):
    """Reporter with one line for each stage: its number, a bar, the time left, and two metrics.

    Args:
        stages: List of str, the names of all stages in order.
        verbose: `0` silent, `1` one line per stage, `2` a line per epoch, or `"auto"`.
        callbacks: List of Keras callbacks that each stage gets.
        log_dir: Folder for TensorBoard logs, or None.
        notes: Boolean. Whether messages are shown. In Python, they become warnings after training.

    Attributes:
        steps: Dict from stages to their training steps, for the time left of the whole.

    It is a context manager: leaving it ends the line.
    """

    def __init__(self, stages, verbose="auto", callbacks=(), log_dir=None, notes=False):
        if verbose == "auto":
            verbose = 1 if sys.stdout is not None and _is_interactive() else 2
        if verbose not in (0, 1, 2):
            raise ValueError(f"`verbose` must be 0, 1, 2 or 'auto'. Received: verbose={verbose!r}")
        super().__init__(write=self._write, log_dir=log_dir)
        self.stages, self.verbose, self.own_callbacks = list(stages), verbose, list(callbacks)
        self.notes, self.steps = notes, {}
        self._shown, self._next, self._metrics, self._announced = "", 0.0, {}, False
        self._start = time.perf_counter()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.verbose == 1:
            self._draw("")
            if not error[0]:
                self._print(f"Trained in {duration(time.perf_counter() - self._start)}")

    def stage_began(self, stage):
        super().stage_began(stage)
        self._metrics = {}
        self._show([self._title(stage)])

    def step(self, stage, epoch, step, logs):
        if self.verbose != 1:
            return super().step(stage, epoch, step, logs)
        self._where = epoch, step, logs["loss"]
        now = time.perf_counter()
        if now < self._next:
            return
        epochs, steps = self._length
        done, whole = epoch * steps + step, epochs * steps
        left, in_all = self._left(stage, done, whole, now)
        if not self._announced and now - self._since > SETTLED:
            self._announced = True
            if in_all > LONG:
                self._print(
                    f"About {duration(in_all)} in all. You can interrupt and resume at any time."
                )
        bar = "█" * round(_BAR * done / whole)
        metrics = two({**self._metrics, "loss": float(logs["loss"])})
        self._show(
            [
                self._title(stage),
                f"{bar:·<{_BAR}}",
                f"{duration(left)} left, all {duration(in_all)}",
                ", ".join(f"{name} {value:.3g}" for name, value, _ in metrics),
            ]
        )

    def _left(self, stage, done, whole, now):
        """Return the seconds left of the stage and of the training."""
        rate = (done - self._counted) / max(now - self._since, 1e-9)
        left = (whole - done) / max(rate, 1e-9)
        later = self.stages[self.stages.index(stage) + 1 :]
        # Steps of later stages are taken to last as long as those of this stage.
        return left, left + sum(self.steps.get(name, 0) for name in later) / max(rate, 1e-9)

    def epoch(self, stage, epoch, metrics):
        self._metrics = metrics
        if self.verbose == 2:
            super().epoch(stage, epoch, metrics)

    def stage_started(self, stage, epochs, steps, first_step=0):
        if self.verbose == 2:
            return super().stage_started(stage, epochs, steps, first_step)
        self._length = epochs, steps
        self._counted, self._since = first_step, time.perf_counter()

    def stage_skipped(self, stage):
        if self.verbose == 2:
            super().stage_skipped(stage)
        elif self.notes:
            self._print(f"{self._title(stage)} done before")

    def stage_finished(self, stage, seconds):
        if self.verbose == 2:
            return super().stage_finished(stage, seconds)
        line = f"{self._title(stage)} {duration(seconds):>6}"
        for name, value, meaning in two(self._metrics):
            more = f"  {name} {value:.3g}"
            explained = f"{more} ({meaning})"
            more = explained if len(line + explained) <= self._width() else more
            if len(line + more) > self._width():
                break
            line += more
        self._print(line)

    def note(self, line):
        if self.verbose == 2 or self.notes:
            self._print(line)

    def images(self, lines):
        # The number of images goes without saying where the caller gave them.
        for line in lines if self.verbose == 2 or self.notes else lines[1:]:
            self._print(line)

    def callbacks(self, stage):
        return [*super().callbacks(stage), *self.own_callbacks]

    def progress(self):
        if self.verbose == 1 and self._where is None:
            self._show([self._title(self._stage)])
        return super().progress()

    def _title(self, stage):
        if stage not in self.stages:
            return "reading images"
        width = max(map(len, self.stages))
        return f"[{self.stages.index(stage) + 1}/{len(self.stages)}] {stage:{width}}"

    def _width(self):
        if "ipykernel" in sys.modules:
            return _NOTEBOOK
        return max(NARROWEST, shutil.get_terminal_size().columns - 1)

    def _show(self, parts):
        """Show title, bar, time and metrics; what does not fit is left out, the metrics first."""
        if self.verbose != 1:
            return
        self._next = time.perf_counter() + _EVERY
        for kept in ((0, 1, 2, 3), (0, 1, 2), (0, 2), (0,)):
            text = " ".join(parts[k] for k in kept if k < len(parts))
            if len(text) <= self._width():
                break
        self._draw(text)

    def _draw(self, text):
        text = text[: self._width()]
        sys.stdout.write(f"\r{text}{' ' * (len(self._shown) - len(text))}")
        if not text:
            sys.stdout.write("\r")
        sys.stdout.flush()
        self._shown = text

    def _print(self, line):
        """Print a line that stays, above the line of progress."""
        if self.verbose == 1:
            self._draw("")
        if self.verbose:
            print(line, flush=True)

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


def _is_interactive():
    return sys.stdout.isatty() or "ipykernel" in sys.modules
