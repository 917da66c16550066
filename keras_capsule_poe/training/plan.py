"""Estimate of a run, from a few measured steps of each stage on a few of its images."""

import dataclasses
import math
import resource
import sys
import tempfile
import time

from keras_capsule_poe.training.family import schedule_of
from keras_capsule_poe.training.folder import RunFolder
from keras_capsule_poe.training.images import watched
from keras_capsule_poe.training.progress import Reporter
from keras_capsule_poe.training.run import Run

# Measured steps of a stage, after one that traces and compiles it.
STEPS = 3
# Images of a measured run. Some stages need many to start from, such as clusters of them.
IMAGES = 1000


def plan(config, data):
    """Return a dict of shapes, parameters, stages with times, and peak memory in bytes."""
    data = watched(data, config)
    shapes, parameters = config.family.outline(config, data.image_shape)
    stages = {}
    for stage in config.stages:
        section = config[stage.section] if stage.section else None
        if hasattr(section, "batch_size"):
            epochs, steps = schedule_of(section).over(len(data.train))
            stages[stage.name] = {"epochs": epochs, "steps": epochs * steps}
    for name, seconds in measure(config, data).items():
        steps = stages[name]["steps"]
        stages[name] |= {"step_seconds": seconds, "seconds": steps * seconds}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "shapes": shapes,
        "parameters": parameters,
        "stages": stages,
        "seconds": sum(stage.get("seconds", 0.0) for stage in stages.values()),
        # macOS counts bytes, Linux kilobytes.
        "peak_bytes": peak if sys.platform == "darwin" else 1024 * peak,
    }


def measure(config, data):
    """Return the seconds of a step of each stage that trains; the last stage only exports."""
    batch = max(getattr(section, "batch_size", 0) for section in config.sections.values())
    few = dataclasses.replace(
        data,
        train=data.train.head(max(IMAGES, batch)),
        held_out=data.held_out.head(IMAGES),
        test=data.test.head(IMAGES),
    )
    with tempfile.TemporaryDirectory() as folder:
        run = _Rehearsal(config, RunFolder(folder), Reporter(verbose=0), lambda: few)
        run.step_seconds = {}
        run.folder.save(config, None, "rehearsal")
        for stage in config.stages[:-1]:
            run.folder.stage(stage.name).mkdir(parents=True)
            run.folder.mark_done(stage, 0.0, stage.run(run))
    return run.step_seconds


class _Rehearsal(Run):
    """A run that trains each stage for a few steps and measures them."""

    def fit(
        self, stage, model, stream, schedule, after_epoch=None, picture=None, until=None,
        callbacks=(),
    ):  # fmt: skip
        steps = math.prod(schedule.over(len(self.data.train)))
        order = {"batch_size": schedule.batch_size, "seed": self.config.seed, "epochs": STEPS + 1}
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
