"""How training tells of its progress; the base class prints lines."""

import contextlib
import threading
import time


class Reporter:
    """Prints a line when a stage starts, after each epoch, when it ends, and in between.

    Subclass it to show progress in another way.

    Args:
        write: Function of one line of text.
        log_dir: Folder for TensorBoard logs, or `None`.
        silence: float, seconds after which a stage that works without a line says so.
    """

    def __init__(self, write=print, log_dir=None, silence=25.0):
        self.write = write
        self.log_dir = log_dir
        self.silence = silence
        self.batch_size = None
        self._stage, self._where, self._pulse = None, None, None

    def stage_began(self, stage):
        """A stage begins, before it has loaded anything."""
        self._stage, self._where = stage, None
        self._began = self._last = time.perf_counter()
        self._pulse = threading.Event()
        threading.Thread(target=self._beat, args=(self._pulse,), daemon=True).start()

    def stage_started(self, stage, epochs, steps, first_step=0):
        """Training of a stage starts, or goes on after `first_step` steps."""
        self._length = epochs, steps
        self._counted, self._since = first_step, time.perf_counter()
        if first_step:
            self.say(f"{stage}: resumed after step {first_step} of {epochs * steps}")
        else:
            plural = "" if epochs == 1 else "s"
            self.say(f"{stage}: {epochs} epoch{plural} of {steps} steps")

    def stage_skipped(self, stage):
        """A stage was done before."""
        self.say(f"{stage}: done before")

    def stage_ended(self):
        """A stage ends, one way or the other."""
        if self._pulse:
            self._pulse.set()
        self._pulse = None

    def step(self, stage, epoch, step, logs):
        """After each step; `logs` holds the running metrics of the epoch."""
        self._where = epoch, step, logs["loss"]

    def epoch(self, stage, epoch, metrics):
        """After each epoch."""
        self.say(f"{stage}: epoch {epoch}: {describe(metrics)}")

    def stage_finished(self, stage, seconds):
        """A stage is done."""
        self.say(f"{stage}: finished in {seconds:.0f} s")

    def note(self, line):
        """Something that a person should know."""
        self.say(line)

    def callbacks(self, stage):
        """Further Keras callbacks for a stage: TensorBoard, when asked for."""
        if self.log_dir is None:
            return []
        import keras

        class TensorBoard(keras.callbacks.TensorBoard):
            def on_epoch_end(self, epoch, logs=None):
                # Keras would write an epoch only where it ends with a step that is written.
                with self.summary.record_if(True):
                    super().on_epoch_end(epoch, logs)

        return [TensorBoard(f"{self.log_dir}/{stage}", update_freq=10)]

    def say(self, line):
        """Writes a line."""
        self._last = time.perf_counter()
        self.write(line)

    def progress(self):
        """Where the stage stands, as a line."""
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
                # A closed output ends training where that writes, and with a message.
                with contextlib.suppress(OSError, ValueError):
                    self.say(self.progress())


def describe(metrics):
    """Metrics as text: `loss 0.123  seconds 4.56`."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
