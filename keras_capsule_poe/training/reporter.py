"""How training tells of its progress; the base class prints one line an epoch."""

import time


class Reporter:
    """Prints a line when a stage starts, after each epoch and when a stage ends.

    Subclass it to show progress in another way.

    Args:
        write: Function of one line of text.
        log_dir: Folder for TensorBoard logs, or `None`.
    """

    def __init__(self, write=print, log_dir=None):
        self.write = write
        self.log_dir = log_dir

    def stage_started(self, stage, epochs=None, steps=None, first_epoch=0):
        """A stage begins; `epochs` and `steps` are None where it does not iterate."""
        self.started = time.perf_counter()
        if epochs is None:
            self.write(f"{stage}: started")
        elif first_epoch:
            self.write(f"{stage}: resumed after epoch {first_epoch} of {epochs}")
        else:
            plural = "" if epochs == 1 else "s"
            self.write(f"{stage}: {epochs} epoch{plural} of {steps} steps")

    def stage_skipped(self, stage):
        self.write(f"{stage}: done before")

    def step(self, stage, epoch, step, logs):
        """After each step; `logs` holds the running metrics of the epoch."""

    def epoch(self, stage, epoch, metrics):
        self.write(f"{stage}: epoch {epoch}: {describe(metrics)}")

    def stage_finished(self, stage, seconds):
        self.write(f"{stage}: finished in {seconds:.0f} s")

    def callbacks(self, stage):
        """Further Keras callbacks for a stage: TensorBoard, when asked for."""
        if self.log_dir is None:
            return []
        import keras

        return [keras.callbacks.TensorBoard(f"{self.log_dir}/{stage}", update_freq=10)]


def describe(metrics):
    """Metrics as text: `loss 0.123  seconds 4.56`."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
