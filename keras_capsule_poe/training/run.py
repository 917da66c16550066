"""A training run: the stages of a family in order, each of them run, resumed or skipped."""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.io.atomic import check_writable
from keras_capsule_poe.io.records import read_record, write_record
from keras_capsule_poe.training import images
from keras_capsule_poe.training.acquire import acquire, follow
from keras_capsule_poe.training.config import RunConfig
from keras_capsule_poe.training.family import training_steps
from keras_capsule_poe.training.folder import CHECKPOINTS, PICTURES, RunFolder
from keras_capsule_poe.training.precision import check_global_settings
from keras_capsule_poe.training.progress import Reporter

if TYPE_CHECKING:
    from keras_capsule_poe.data.image_set import ImageData
    from keras_capsule_poe.distributed.distribution import Distribution
    from keras_capsule_poe.training.family import Schedule


def _one_device():
    # Imported here because it imports NumPy, which would slow down `capspoe --help`.
    from keras_capsule_poe.distributed.distribution import Distribution

    return Distribution()


@dataclasses.dataclass
class Run:
    """State that the stages of a run share. `train` creates it; see there for an example.

    Attributes:
        config: `RunConfig`.
        folder: `RunFolder`.
        reporter: `Reporter`.
        load_data: Function without arguments that returns an `ImageData`; called at most once.
        distribution: `Distribution`, the devices and processes that train together.
    """

    config: RunConfig
    folder: RunFolder
    reporter: Any
    load_data: Callable
    distribution: Any = dataclasses.field(default_factory=_one_device)

    @property
    def is_chief(self):
        """True if this process writes files and reports."""
        return self.distribution.is_chief

    @property
    def data(self):
        """`ImageData`, loaded at first use. Its `train.images` are uint8 (N, H, W, C)."""
        if not hasattr(self, "_data"):
            self._data = self.load_data()
        return self._data

    def load(self):
        """Load the images, with progress lines, and return the `ImageData`."""
        with self.reporter.stage("images"):
            return self.data

    def path(self, name: str) -> Path:
        """Return the path of a file in the run's folder.

        Raises:
            RunFailed: If another run lies there by now.
        """
        self.folder.check_held()
        return self.folder.path / name

    def once(self, stage: str, name: str, make: Callable[[], Any]) -> Any:
        """Return a value that a stage computes once, also if the stage is interrupted and resumed.

        Args:
            stage: str, name of the stage.
            name: str, name of the value.
            make: Function without arguments that returns the value, which must fit into JSON.

        Returns:
            The value. A finished stage that runs again computes a new one.
        """
        path = self.folder.stage(stage) / CHECKPOINTS / f"{name}.json"
        if not path.exists():
            write_record(path, {name: make()}, copy=False)
        return read_record(path, hint=f"stage_fresh:{stage}")[name]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return the metrics of each finished stage, by its name."""
        return self.folder.metrics(self.config.family)

    def fit(
        self,
        stage: str,
        model: Any,
        stream: Callable[..., Any],
        schedule: "Schedule",
        after_epoch: Callable[[], dict[str, Any]] | None = None,
        picture: Callable[[Path], Any] | None = None,
        until: Callable[[dict[str, Any]], Any] | None = None,
        callbacks: Sequence[Any] = (),
    ) -> dict[str, Any]:
        """Fit the model of a stage with checkpoints, resuming from the newest one.

        Args:
            stage: str, name of the stage.
            model: Built and compiled Keras model that reports a `loss`.
            stream: Function with the keyword arguments of `batches` that returns a
                `tf.data.Dataset`.
            schedule: `Schedule`.
            after_epoch: Function without arguments, called after each epoch, that returns a dict of
                further metrics.
            picture: Function of a path that draws what the model has learned, called about eight
                times in a stage.
            until: Function of an epoch's metrics that returns whether training may stop.
            callbacks: Keras callbacks that depend on the step only, because a resumed run has new
                ones.

        Returns:
            dict, the metrics of the last epoch.

        Raises:
            RunFailed: If a loss or weight is not finite, no checkpoint can be used, or another
                process has stopped. The last checkpoint stays.
        """
        from keras_capsule_poe.training.fitting import Diverged, fit

        epochs, steps = schedule.over(len(self.data.train))
        order = {"batch_size": schedule.batch_size, "seed": self.config.seed, "epochs": epochs}
        self.reporter.batch_size = schedule.batch_size
        self.reporter.stages |= training_steps(self.config, len(self.data.train))
        try:
            history = fit(
                model,
                lambda epoch, step: stream(first_epoch=epoch, first_step=step, **order),
                stage=stage,
                folder=self.folder.stage(stage),
                length=(epochs, steps),
                reporter=self.reporter,
                checkpoint_seconds=self.config.checkpoint_seconds,
                run=self.folder.saved().get("run"),
                after_epoch=after_epoch,
                picture=picture and (lambda name: picture(self.path(PICTURES) / name)),
                until=until,
                callbacks=callbacks,
                distribution=self.distribution,
                check=self.folder.check_held,
            )
        except Diverged as error:
            given = self.config.numbers_given(stage)
            if not given:
                raise
            raise Diverged(
                f"{error} What was given may be why: {given}.", hint=error.hint
            ) from error
        return history[-1]


def train(
    config: RunConfig,
    model_dir: str | Path,
    load_data: "Callable[[], ImageData] | None" = None,
    reporter: Reporter | None = None,
    stage: str | None = None,
    fresh: bool = False,
    distribution: "Distribution | None" = None,
) -> Run:
    """Run all stages that are not finished yet.

    No file changes before the configuration, the images and the folder are known to fit together.

    Args:
        config: `RunConfig`.
        model_dir: Folder of the run.
        load_data: Function without arguments that returns an `ImageData`, called if images are
            needed; None: load the images that `config` names.
        reporter: `Reporter`; None: one that prints.
        stage: str, name of the last stage to run; None: run all. With `fresh` it is also the
            first stage to start over.
        fresh: bool, start over from `stage`, or from the first stage.
        distribution: `Distribution` that `devices.start` returned; None: one device. All its
            processes must make the same call, with a folder that all of them can read.

    Returns:
        `Run`.

    Raises:
        RunFailed: If the folder belongs to another configuration or to other images, a stage
            fails, or another process has stopped.
        ConfigError: If a value is out of range, there is no such stage, or Keras does not use
            the TensorFlow backend.

    Example:

    >>> import tempfile
    >>> from keras_capsule_poe.training import Family, Recipe, Stage
    >>> def note(run):
    ...     run.path("model.keras").write_text(f"{len(run.data.train)} images")
    ...     return {}
    >>> stages = (Stage("note", note, writes=("model.keras",)),)
    >>> family = Family("notes", "a note", {}, stages, {"plain": Recipe("")}, load=None)
    >>> config = RunConfig(family, dataset="digits", limit=50)
    >>> run = train(config, tempfile.mkdtemp(), reporter=Reporter(verbose=0))
    >>> run.path("model.keras").read_text()
    '48 images'
    """
    _check_backend()
    reporter = reporter or Reporter()
    if config.deterministic:
        fix_threads(reporter.note)
    stages = config.stages
    names = [known.name for known in stages]
    if stage is not None and stage not in names:
        raise ConfigError(
            f"Model {config.family.name!r} has no stage {stage!r}; it has {', '.join(names)}."
        )
    config.check()
    folder, distribution = RunFolder(model_dir), distribution or _one_device()
    load_data = load_data or functools.partial(images.load_data, config)
    reporter = _follower(reporter, distribution)
    reporter.stages = dict.fromkeys(names, 0)
    run = Run(config, folder, reporter, lambda: images.watched(load_data(), config), distribution)
    first = names.index(stage) if fresh and stage else 0
    # A stage that only exports is run again over its files, which stay if it fails.
    only_exports = fresh and first == len(stages) - 1 and stages[-1].alone
    again = stages[first:] if only_exports else ()
    cleared = stages[first:] if fresh and not only_exports else ()
    last = names.index(stage) if stage else len(names) - 1
    if run.is_chief:
        if not folder.path.exists():
            # Check first, so that a run that cannot be trained leaves no folder.
            check_writable(next(path for path in folder.path.absolute().parents if path.exists()))
            run.load()
            images.check(run.data, config, stages)
        check_writable(folder.path)
    with folder.locked(run.reporter.note) if run.is_chief else contextlib.nullcontext():
        if run.is_chief:
            acquire(run, cleared, again)
        follow(run)
        folder.hold(folder.saved()["run"])
        if config.deterministic:
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()
        _run_stages(run, stages[: last + 1], again)
        if last == len(names) - 1 and run.is_chief:
            folder.drop_cache(stages)
    return run


def fix_threads(note):
    """Divide sums for all processors of the machine, also if few are allowed.

    By default they are divided for the allowed processors, and other parts give other roundings.
    `note` is called with a line of text if TensorFlow has started with another number.
    """
    import numpy  # noqa: F401
    import tensorflow as tf
    from sklearn import cluster  # noqa: F401
    from threadpoolctl import threadpool_limits

    threads = os.cpu_count()
    # Of the libraries that are imported. Threads of OpenMP add up sums in any order.
    threadpool_limits({"blas": threads, "openmp": 1})
    if tf.config.threading.get_intra_op_parallelism_threads() == threads:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError:
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads
        started = tf.config.threading.get_intra_op_parallelism_threads() or allowed
        if started != threads:
            note(
                f"TensorFlow has started with {started} of {threads} threads. Only runs with as "
                "many have the same numbers, bit for bit."
            )


def _check_backend():
    import keras

    if keras.backend.backend() != "tensorflow":
        raise ConfigError(
            "Stages are trained on Keras' TensorFlow backend. "
            f"Received: the backend {keras.backend.backend()!r}"
        )
    check_global_settings()


def _follower(reporter, distribution):
    """Return this process's reporter: a silent one unless it is the chief."""
    if distribution.is_chief:
        return reporter
    number, workers = distribution.worker, distribution.workers
    reporter.note(f"Worker {number} of {workers}, from 0: worker 0 reports and writes.")
    return Reporter(verbose=0)


def _run_stages(run, wanted, again):
    for stage in wanted:
        is_left = run.distribution.from_chief(
            run.is_chief and (stage in again or _is_left(run, stage))
        )
        if not is_left:
            continue
        with run.reporter.stage(stage.name):
            started = time.perf_counter()
            if run.is_chief:
                run.path(stage.name).mkdir(exist_ok=True)
            metrics = stage.run(run) if run.is_chief or not stage.alone else None
            seconds = time.perf_counter() - started
            if run.is_chief:
                run.folder.mark_done(stage, seconds, metrics)
        # Barrier: a stage's files must exist before the next stage begins.
        run.distribution.from_chief(None)


def _is_left(run, stage):
    """Return whether a stage must run; mark later stages as not started if it is new."""
    folder, reporter, stages = run.folder, run.reporter, run.config.stages
    if folder.is_done(stage, stages):
        folder.check(stage)
        changed = folder.changed_cache(stage, stages)
        if not changed:
            reporter.stage_skipped(stage.name)
            for warning in folder.done(stage.name)["metrics"].get("complaints", ()):
                reporter.note(f"{stage.name}: {warning}")
            return False
        reporter.note(f"{folder.path / changed[0]} is damaged: {stage.name} makes it again")
    if folder.done(stage.name) is None:
        # Now, so that it also holds if this stage is killed.
        folder.forget(stages[stages.index(stage) + 1 :])
    return True
