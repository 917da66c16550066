"""Keras callbacks of a user, heard over all parts of a training."""

import contextlib
import copy
import csv
import importlib.util
import io
import warnings
from pathlib import Path

from keras_capsule_poe.errors import BadUse, TrainingWarning, listing
from keras_capsule_poe.former_names import Metrics
from keras_capsule_poe.io.atomic import atomic_write

_SCHEDULED = (
    "the learning rate of each part follows a schedule of its own. Set `learning_rate` of a part, "
    "and stop early with EarlyStopping"
)
# Callbacks of Keras that no training in parts can follow.
_REFUSED = {
    "BackupAndRestore": "`fit(folder=...)` keeps checkpoints of all parts, and the same call "
    "resumes",
    "LearningRateScheduler": _SCHEDULED,
    "ReduceLROnPlateau": _SCHEDULED,
    "SwapEMAWeights": "classifiers have the setting `ema_momentum`",
}
# Columns of a log, before those of the metrics; epochs count from 0, as in Keras.
_COLUMNS = ("part", "epoch")


class Listeners:
    """Callbacks of one training, checked before it starts.

    Args:
        callbacks: List of Keras callbacks.
        model: Model that is trained; its `WHOLE` names the stage in which it is whole.

    Raises:
        BadUse: If one is no Keras callback, or cannot be used.
    """

    def __init__(self, callbacks, model):
        self._whole = getattr(model, "WHOLE", None)
        self._before, self._seen = {}, set()
        for callback in callbacks:
            self._check(callback)

    def _check(self, callback):
        import keras

        known = keras.callbacks
        if not isinstance(callback, known.Callback) or isinstance(callback, known.CallbackList):
            raise BadUse(f"`callbacks` must hold Keras callbacks. Received: {callback!r:.80}")
        for name, why in _REFUSED.items():
            if isinstance(callback, getattr(known, name, ())):
                raise BadUse(f"`callbacks` must not hold {name}: {why}. Received: {callback!r:.80}")
        if isinstance(callback, known.ModelCheckpoint) and self._whole is None:
            raise BadUse(
                "`callbacks` must not hold ModelCheckpoint: this model is whole only after its "
                "training. `fit(folder=...)` keeps checkpoints. "
                f"Received: {callback!r:.80}"
            )
        is_there = importlib.util.find_spec("tensorboard") is not None
        if isinstance(callback, known.TensorBoard) and not is_there:
            raise BadUse(
                "`callbacks` must not hold TensorBoard, which is not installed. Install it: "
                f"pip install 'keras-capsule-poe[tensorboard]'. Received: {callback!r:.80}"
            )
        if type(callback) is known.CSVLogger:
            path = Path(callback.filename)
            text = path.read_text() if callback.append and path.exists() else ""
            self._before[callback] = list(csv.DictReader(io.StringIO(text), delimiter=callback.sep))

    def of(self, stage, callbacks, part, history, whole=None):
        """Return one Keras callback that passes the events of a stage on to those of the user.

        Args:
            stage: Name of the stage.
            callbacks: List of Keras callbacks.
            part: Model that the stage trains.
            history: Function without arguments that returns pairs of a stage and the list of its
                metrics per epoch, of all stages so far.
            whole: Function without arguments that returns the whole model; None: it is not whole.
        """
        import keras

        known, found = keras.callbacks, []
        for callback in callbacks:
            if type(callback) is known.CSVLogger:
                log = (callback.filename, callback.sep, self._before.get(callback, []))
                callback = keras.callbacks.LambdaCallback(
                    on_epoch_end=lambda epoch, logs, log=log: write_log(*log, history())
                )
            elif isinstance(callback, known.TensorBoard):
                callback = copy.copy(callback)
                callback.log_dir = f"{callback.log_dir}/{stage}"
            elif isinstance(callback, known.ModelCheckpoint) and whole is None:
                continue
            found.append(callback)
        return _heard(found, part, whole, self._seen)

    def finish(self, callbacks):
        """Warn of callbacks whose metric no stage had, if one was trained."""
        seen = Metrics(dict.fromkeys(self._seen))
        for callback in callbacks if seen else ():
            monitor = getattr(callback, "monitor", None)
            if monitor is not None and monitor not in seen:
                warnings.warn(
                    f"{type(callback).__name__} had nothing to do: no part has the metric "
                    f"`{monitor}`. There are {listing(sorted(self._seen), 20)}",
                    TrainingWarning,
                    stacklevel=4,
                )


def _heard(callbacks, part, whole, seen):
    """Return a Keras callback that passes the events of a part's training on to others."""
    import keras

    class Heard(keras.callbacks.Callback):
        def set_model(self, model):
            super().set_model(model)
            for each in callbacks:
                is_checkpoint = isinstance(each, keras.callbacks.ModelCheckpoint)
                each.set_model(_Whole(part, whole) if is_checkpoint else model)

        def set_params(self, params):
            super().set_params(params)
            for each in callbacks:
                each.set_params(params)

        def on_epoch_end(self, epoch, logs=None):
            logs = Metrics(logs or {})
            seen.update(logs)
            for each in callbacks:
                monitor = getattr(each, "monitor", None)
                # A part has metrics of its own.
                if monitor is None or monitor in logs:
                    with _recording(each):
                        each.on_epoch_end(epoch, logs)

    def passed(name):
        def event(self, *arguments, **named):
            for each in callbacks:
                getattr(each, name)(*arguments, **named)

        return event

    for name in ("train_begin", "train_end", "epoch_begin", "train_batch_begin", "train_batch_end"):
        setattr(Heard, f"on_{name}", passed(f"on_{name}"))
    return Heard()


def _recording(callback):
    """Return a context for the end of an epoch."""
    import keras

    if not isinstance(callback, keras.callbacks.TensorBoard):
        return contextlib.nullcontext()
    # Keras would write an epoch only if its last step is a logged one.
    return callback.summary.record_if(True)


class _Whole:
    """Model of a checkpoint: the whole one for its files, the part for its metrics."""

    def __init__(self, part, make):
        self._part, self._make = part, make

    @property
    def metrics(self):
        """Metrics of the part, which say whether more is better."""
        return self._part.metrics

    def save(self, path, **options):
        """Write the whole model, as `keras.Model.save`."""
        self._make().save(path, **options)

    def save_weights(self, path, **options):
        """Write the weights of the whole model, as `keras.Model.save_weights`."""
        self._make().save_weights(path, **options)


def write_log(path, separator, before, history):
    """Write a table of the metrics of all epochs: rows from before, then those of each stage.

    A metric that a stage does not have is `NA`, as in Keras.
    """
    rows = list(before)
    for stage, epochs in history:
        rows += [{**epoch, "part": stage, "epoch": epoch["epoch"] - 1} for epoch in epochs]
    columns = dict.fromkeys([*_COLUMNS, *(name for row in rows for name in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="NA", delimiter=separator, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with atomic_write(path) as temporary:
        temporary.write_text(text.getvalue())
