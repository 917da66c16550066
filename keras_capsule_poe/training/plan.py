"""Estimate of a run, from a few measured steps of each stage on a few of its images."""

import dataclasses
import math
import resource
import sys
import tempfile
import time

from keras_capsule_poe.training.folder import RunFolder
from keras_capsule_poe.training.images import watched
from keras_capsule_poe.training.progress import Reporter
from keras_capsule_poe.training.run import Run

# Measured steps of a stage, after one that traces and compiles it.
STEPS = 3
# Images of a measured run. Some stages need many to start from, such as clusters of them.
IMAGES = 1000


def plan(model, data):
    """Return a dict of shapes, parameters, stages with times, and peak memory in bytes."""
    settings = model.settings
    data = watched(data, settings)
    shapes, parameters = model.outline(settings, data.image_shape)
    stages = {}
    for stage, steps in settings.steps(len(data.train)).items():
        epochs, _ = settings.trained(stage).schedule.over(len(data.train))
        stages[stage] = {"epochs": epochs, "steps": steps}
    for stage, seconds in measure(model, data).items():
        stages[stage] |= {"step_seconds": seconds, "seconds": stages[stage]["steps"] * seconds}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "shapes": shapes,
        "parameters": parameters,
        "stages": stages,
        "seconds": sum(stage.get("seconds", 0.0) for stage in stages.values()),
        # macOS counts bytes, Linux kilobytes.
        "peak_bytes": peak if sys.platform == "darwin" else 1024 * peak,
    }


def measure(model, data):
    """Return the seconds of a step of each stage that trains; the last stage only exports."""
    settings = model.settings
    batch = max(getattr(part, "batch_size", 0) for part in settings.parts.values())
    few = dataclasses.replace(
        data,
        train=data.train.head(max(IMAGES, batch)),
        held_out=data.held_out.head(IMAGES),
        test=data.test.head(IMAGES),
    )
    with tempfile.TemporaryDirectory() as folder:
        run = _Rehearsal(settings, RunFolder(folder), Reporter(verbose=0), lambda: few)
        run.folder.save(settings, None, "rehearsal")
        run.train(model, last=run.stages[-2])
    return run.step_seconds


class _Rehearsal(Run):
    """A run that trains each stage for a few steps and measures them."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.step_seconds = {}

    def fit(
        self, stage, model, stream, schedule, after_epoch=None, picture=None, until=None,
        callbacks=(), whole=None,
    ):  # fmt: skip
        steps = math.prod(schedule.over(len(self.data.train)))
        order = {"batch_size": schedule.batch_size, "seed": self.settings.seed, "epochs": STEPS + 1}
        ends = []
        clock = _callback(lambda: ends.append(time.perf_counter()))
        import keras

        history = keras.Model.fit(
            model,
            stream(first_epoch=0, first_step=0, **order),
            steps_per_epoch=min(STEPS + 1, steps),
            verbose=0,
            shuffle=False,
            callbacks=[clock, *callbacks],
        )
        times = [after - before for before, after in zip(ends, ends[1:])]
        if times:
            self.step_seconds[stage] = sorted(times)[len(times) // 2]
        last = {name: values[-1] for name, values in history.history.items()}
        last |= after_epoch() if after_epoch else {}
        return {name: float(value) for name, value in last.items()}


def _callback(function):
    """Return a Keras callback that calls a function after each step."""
    import keras

    class AfterStep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            function()

    return AfterStep()
