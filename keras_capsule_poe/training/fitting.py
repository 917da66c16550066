"""Fitting one model with checkpoints: what stops is taken up again where it stood."""

import json
import math
import time
from pathlib import Path

import keras
import tensorflow as tf

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.files import write_json


class Diverged(RunFailed):
    """Training produced a value that is not a number."""


def fit(model, batches, *, stage, folder, epochs, steps, reporter, after_epoch=None, picture=None):
    """Fits `model` for `epochs`, resuming from the newest checkpoint in `folder`.

    Args:
        model: Compiled and built Keras model that reports a `loss`.
        batches: Function of the first epoch to a `tf.data.Dataset` of the remaining ones.
        stage: str, what the stage is called in messages.
        folder: Where `checkpoints/` and `history.json` lie.
        epochs: int, total.
        steps: int, batches an epoch.
        reporter: Is told of steps and epochs, see `Reporter`.
        after_epoch: Function of nothing to a dict of further metrics, called each epoch.
        picture: Function of a file name, called a few times a stage; draws what was learned.

    Returns:
        list of dict, the metrics of each epoch.

    Raises:
        Diverged: If the loss is not a number; the last checkpoint is kept.
        RunFailed: If a checkpoint cannot be read or does not belong to the model.
    """
    folder = Path(folder)
    model.optimizer.build(model.trainable_variables)
    checkpoints = _Checkpoints(model, folder)
    first_epoch = checkpoints.restore()
    monitor = _Monitor(
        stage,
        checkpoints,
        folder / "history.json",
        first_epoch,
        (epochs, steps),
        reporter,
        after_epoch,
        picture,
    )
    reporter.stage_started(stage, epochs=epochs, steps=steps, first_epoch=first_epoch)
    if first_epoch < epochs:
        model.fit(
            batches(first_epoch),
            initial_epoch=first_epoch,
            epochs=epochs,
            steps_per_epoch=steps,
            verbose=0,
            shuffle=False,
            callbacks=[monitor, *reporter.callbacks(stage)],
        )
    return monitor.history


class _Checkpoints:
    """Model, optimizer and epoch in `folder/checkpoints`; the two newest are kept."""

    def __init__(self, model, folder):
        self.epoch = tf.Variable(0, dtype="int64", trainable=False)
        self.checkpoint = tf.train.Checkpoint(model=model, epoch=self.epoch)
        self.manager = tf.train.CheckpointManager(
            self.checkpoint, str(folder / "checkpoints"), max_to_keep=2
        )

    def restore(self):
        """Restores the newest checkpoint; returns the number of finished epochs."""
        newest = self.manager.latest_checkpoint
        if newest is None:
            return 0
        try:
            self.checkpoint.restore(newest).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, ValueError) as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise RunFailed(
                f"The checkpoint {newest} is damaged or of another model ({reason}). "
                "Remove it to go on from an older one, or start over with --fresh."
            ) from error
        return int(self.epoch.numpy())

    def save(self, epochs_done):
        self.epoch.assign(epochs_done)
        try:
            self.manager.save()
        except (tf.errors.OpError, OSError) as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise RunFailed(
                f"Cannot save a checkpoint in {self.manager.directory}: {reason}. "
                "The one before is kept; make room and run the same command again."
            ) from error


class _Monitor(keras.callbacks.Callback):
    """Stops at NaN, saves after each epoch, keeps the history and reports."""

    PICTURES = 8

    def __init__(
        self, stage, checkpoints, history_path, first_epoch, length, reporter, after_epoch, picture
    ):
        super().__init__()
        self.stage = stage
        self.checkpoints = checkpoints
        self.history_path = history_path
        self.history = _read_history(history_path)[:first_epoch]
        epochs, self.steps = length
        self.reporter = reporter
        self.after_epoch = after_epoch
        self.picture = picture
        self.epoch = first_epoch
        self.every = math.ceil(epochs * self.steps / self.PICTURES)
        self.last_step = epochs * self.steps

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self._check("loss", logs["loss"], batch + 1)
        self.reporter.step(self.stage, self.epoch, batch + 1, logs)
        done = self.epoch * self.steps + batch + 1
        if self.picture and (done % self.every == 0 or done == self.last_step):
            self.picture(f"{self.stage}-{done:05d}.png")

    def on_epoch_end(self, epoch, logs=None):
        metrics = {name: float(value) for name, value in logs.items()}
        metrics["seconds"] = time.perf_counter() - self.started
        if self.after_epoch:
            metrics.update(self.after_epoch())
        # A loss is taken before its step: the last step of an epoch shows in what follows it.
        for name, value in metrics.items():
            self._check(name, value, self.steps)
        self.checkpoints.save(epoch + 1)
        self.history.append({"epoch": epoch + 1, **metrics})
        write_json(self.history_path, self.history)
        self.reporter.epoch(self.stage, epoch + 1, metrics)

    def _check(self, name, value, step):
        if math.isfinite(value):
            return
        kept = f"checkpoint after epoch {self.epoch} is kept" if self.epoch else "no checkpoint yet"
        raise Diverged(
            f"Stage {self.stage} diverged: {name} became {value} in epoch {self.epoch + 1}, step "
            f"{step} of {self.steps} ({kept}). Start over, --stage {self.stage} --fresh, with a "
            f"lower --{self.stage}-learning-rate."
        )


def _read_history(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return []
