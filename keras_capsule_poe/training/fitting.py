"""Fitting of one model with checkpoints; an interrupted fit resumes at the same step."""

import math
import time
from pathlib import Path

import keras

from keras_capsule_poe.distributed.distribution import Distribution
from keras_capsule_poe.errors import Diverged
from keras_capsule_poe.former_names import Metrics
from keras_capsule_poe.io.records import write_json
from keras_capsule_poe.training.checkpoints import Checkpoints
from keras_capsule_poe.training.folder import CHECKPOINTS, HISTORY_FILE


def fit(
    model,
    stream,
    *,
    stage,
    folder,
    length,
    reporter,
    checkpoint_seconds=60.0,
    run=None,
    history=(),
    after_epoch=None,
    picture=None,
    until=None,
    callbacks=(),
    heard=None,
    distribution=None,
    check=lambda: None,
):
    """Fit `model`, resuming from the newest checkpoint in `folder`; return metrics per epoch.

    A model that was trained for the epochs of `history` goes on after them.
    """
    distribution = distribution or Distribution()
    folder, (epochs, steps) = Path(folder), length
    model.optimizer.build(model.trainable_variables)
    _build_metrics(model, stream)
    checkpoints = Checkpoints(model, folder / CHECKPOINTS, hint=f"stage_fresh:{stage}", run=run)
    is_chief, state = distribution.is_chief, None
    if is_chief:
        state = checkpoints.restore(reporter.note)
        if state is None:
            trained = history[-1]["epoch"] * steps if history else 0
            model.optimizer.iterations.assign(trained)
            state = {"step": trained, "history": list(history)}
    state = distribution.from_chief(state)
    distribution.give_variables(checkpoints.variables)
    if is_chief:
        monitor = _Monitor(
            stage, checkpoints, state, length, reporter, checkpoint_seconds, after_epoch, picture,
            until, distribution, check,
        )  # fmt: skip
    else:
        monitor = _Follower(state, distribution)
    # Callbacks of the user come last: they read the metrics on held-out images in `logs`.
    callbacks = [monitor, *callbacks, *([heard(monitor.history)] if heard else [])]
    reporter.stage_started(stage, epochs=epochs, steps=steps, first_step=state["step"])
    enough = distribution.from_chief(monitor.is_enough())
    with distribution.sharing_out(model):
        while monitor.done < epochs * steps and not enough:
            epoch, step = divmod(monitor.done, steps)
            # The rest of an interrupted epoch needs its own call, because it has fewer steps.
            last = epoch + 1 if step else epochs
            # Keras' own `fit`: the images are checked, and a stage reports useless weights itself.
            keras.Model.fit(
                model,
                stream(epoch, step),
                initial_epoch=epoch,
                epochs=last,
                steps_per_epoch=steps - step,
                verbose=0,
                shuffle=False,
                callbacks=callbacks,
            )
            # A callback of the user may stop the stage, such as `EarlyStopping`.
            enough = monitor.is_enough() or model.stop_training
    if is_chief:
        check()
        write_json(folder / HISTORY_FILE, monitor.history)
    return distribution.from_chief(monitor.history)


def _build_metrics(model, stream):
    """Create the variables of `compile`'s metrics with one batch; checkpoints include them."""
    if (model.get_compile_config() or {}).get("metrics"):
        for batch in stream(0, 0).take(1):
            model.test_on_batch(*batch)
        model.reset_metrics()


class _Follower(keras.callbacks.Callback):
    """Callback of a worker that counts steps and stops when the chief does."""

    def __init__(self, state, distribution):
        super().__init__()
        self.done, self.history, self.distribution = state["step"], None, distribution
        self.enough = False

    def on_train_batch_end(self, batch, logs=None):
        self.done += 1

    def on_epoch_end(self, epoch, logs=None):
        self.enough = self.distribution.from_chief(None)
        self.model.stop_training = self.enough

    def is_enough(self):
        """Return whether the chief has stopped."""
        return self.enough


class _Monitor(keras.callbacks.Callback):
    """Callback of the chief: stops at NaN, saves checkpoints, records the history and reports."""

    PICTURES = 8

    def __init__(
        self, stage, checkpoints, state, length, reporter, seconds, after_epoch, picture, until,
        distribution, check,
    ):  # fmt: skip
        super().__init__()
        self.distribution, self.check = distribution, check
        self.stage = stage
        self.checkpoints = checkpoints
        self.done, self.history = state["step"], [Metrics(epoch) for epoch in state["history"]]
        self.epochs, self.steps = length
        self.reporter = reporter
        self.seconds = seconds
        self.after_epoch = after_epoch
        self.picture = picture
        self.until = until
        self.every = math.ceil(self.epochs * self.steps / self.PICTURES)
        self.saved = self.started = time.perf_counter()
        self.kept = self.done
        # Keras resets the metrics when an epoch begins, also when it resumes one.
        inside = self.done % self.steps
        self.metrics = checkpoints.metric_values() if inside else None
        self.before = state.get("epoch_seconds", 0.0) if inside else 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self.started = time.perf_counter() - self.before
        if self.metrics is not None:
            self.checkpoints.assign_metrics(self.metrics)
        self.metrics, self.before = None, 0.0

    def on_train_batch_end(self, batch, logs=None):
        self.done += 1
        epoch, step = divmod(self.done - 1, self.steps)
        self._check("loss", logs["loss"])
        self.reporter.step(self.stage, epoch, step + 1, logs)
        if self.picture and (self.done % self.every == 0 or self._is_last()):
            self.picture(f"{self.stage}-{self.done:05d}.png")
        # The last step of an epoch is saved in `on_epoch_end`, after its history.
        if step + 1 < self.steps:
            self._save_in_time()

    def on_epoch_end(self, epoch, logs=None):
        metrics = {name: float(value) for name, value in logs.items()}
        metrics["seconds"] = time.perf_counter() - self.started
        if self.after_epoch:
            more = Metrics({name: float(value) for name, value in self.after_epoch().items()})
            metrics.update(more)
            # Callbacks of the user read `logs`.
            logs.update(more)
        # A loss precedes its update, so only these metrics show the last update of an epoch.
        for name, value in metrics.items():
            self._check(name, value)
        self.history.append(Metrics({"epoch": epoch + 1, **metrics}))
        self.reporter.epoch(self.stage, epoch + 1, metrics)
        if self.distribution.from_chief(self.is_enough()):
            self.model.stop_training = True
            self.reporter.note(f"{self.stage}: good enough after epoch {epoch + 1}")
        self._save_in_time()

    def is_enough(self):
        """Return whether the last epoch is complete and its metrics satisfy `until`."""
        at_end = self.history and self.done == self.history[-1]["epoch"] * self.steps
        return bool(self.until and at_end and self.until(self.history[-1]))

    def _is_last(self):
        return self.done == self.epochs * self.steps

    def _save_in_time(self):
        now = time.perf_counter()
        is_last = self._is_last() or self.is_enough()
        if now - self.saved < self.seconds and not is_last:
            return
        state = {"history": self.history, "epoch_seconds": now - self.started}
        self.check()
        try:
            self.checkpoints.save(self.done, state)
        except FloatingPointError as error:
            self._check(f"weight {error}", math.nan)
        self.kept, self.saved = self.done, time.perf_counter()

    def _check(self, name, value):
        if math.isfinite(value):
            return
        epoch, step = divmod(self.done - 1, self.steps)
        kept = f"checkpoint of step {self.kept} is kept" if self.kept else "no checkpoint yet"
        raise Diverged(
            f"Stage {self.stage} diverged: {name} became {value} in epoch {epoch + 1}, step "
            f"{step + 1} of {self.steps} ({kept}). It needs a lower learning rate.",
            hint=f"learning_rate:{self.stage}",
        )
