"""A training run: the stages of a model in order, each of them trained, resumed or skipped."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_capsule_poe.errors import ConfigError, Diverged, RunFailed, enough_memory, listing
from keras_capsule_poe.io.atomic import check_writable
from keras_capsule_poe.io.records import read_json, read_record, write_record
from keras_capsule_poe.training import images
from keras_capsule_poe.training.acquire import acquire
from keras_capsule_poe.training.folder import CHECKPOINTS, HISTORY_FILE, PICTURES, RunFolder
from keras_capsule_poe.training.listeners import Listeners
from keras_capsule_poe.training.precision import check_global_settings
from keras_capsule_poe.training.progress import Reporter

if TYPE_CHECKING:
    from keras_capsule_poe.data.image_set import ImageData
    from keras_capsule_poe.distributed.distribution import Distribution
    from keras_capsule_poe.training.settings import Schedule, Settings


class _Stopped(Exception):
    """The last stage that was asked for is done."""


class Run:
    """What the stages of a training share: settings, images, and the folder for their files.

    Attributes:
        settings: `Settings` of the model.
        folder: `RunFolder`.
        reporter: `Reporter`.
        load_data: Function without arguments that returns an `ImageData`; called at most once.
        distribution: `Distribution`, the devices and processes that train together.
        start: Dict of the trained parts with whose weights training begins, by their stage.
        goes_on: List of the stages that were finished and are trained for more epochs.
        name: Name of the model, or None.
    """

    def __init__(
        self,
        settings: "Settings",
        folder: RunFolder,
        reporter: Any,
        load_data: "Callable[[], ImageData]",
        distribution: "Distribution | None" = None,
    ) -> None:
        if distribution is None:
            # Imported here because it imports NumPy, which would slow down `capspoe --help`.
            from keras_capsule_poe.distributed.distribution import Distribution

            distribution = Distribution()
        self.settings, self.folder = settings, folder
        self.reporter, self.load_data, self.distribution = reporter, load_data, distribution
        self.stages = list(settings.stages)
        self.start: dict[str, Any] = {}
        self.goes_on: list[str] = []
        self.name: str | None = None
        self._data: Any = None
        self._cache: list[str] = []
        # Names of files and folders that the present stage asked for: it may write them.
        self._asked: set[str] = set()
        self._again: tuple[str, ...] = ()
        self._last = self.stages[-1]
        self.listeners: Any = None

    @property
    def is_chief(self):
        """True if this process writes files and reports."""
        return self.distribution.is_chief

    @property
    def data(self):
        """`ImageData`, loaded at first use. Its `train.images` are uint8 (N, H, W, C)."""
        if self._data is None:
            self._data = images.watched(self.load_data(), self.settings)
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
        self._asked.add(os.path.normpath(name))
        return self.folder.path / name

    def cache(self, name: str) -> str:
        """Declare a file that only later stages read: the run deletes it at its end."""
        self._cache.append(name)
        return name

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
        return self.folder.metrics(self.stages)

    def train(self, model, last=None):
        """Train the parts of a model, up to the stage `last` if it is given."""
        self._last = last or self.stages[-1]
        with contextlib.suppress(_Stopped), enough_memory():
            model.train_parts(self)

    def part(self, stage: str, train: "Callable[[Run], dict[str, Any]]") -> None:
        """Train one part of the model, unless the folder holds it already.

        Args:
            stage: str, name of the stage; one of `Settings.stages`, in their order.
            train: Function of this run. It writes its files below `path(stage)` and returns a dict
                of metrics. The last stage, which exports the model, runs in the chief alone.
        """
        is_last = stage == self.stages[-1]
        if self.distribution.from_chief(self.is_chief and self._is_left(stage)):
            self._train(stage, train, is_alone=is_last)
        if stage == self._last:
            if is_last and self.is_chief:
                self.folder.drop_cache(self.stages)
            raise _Stopped

    def _train(self, stage, train, is_alone):
        with self.reporter.stage(stage):
            started = time.perf_counter()
            if self.is_chief:
                self.path(stage).mkdir(exist_ok=True)
            self._cache, self._asked = [], set()
            metrics = train(self) if self.is_chief or not is_alone else None
            seconds = time.perf_counter() - started
            if self.is_chief:
                exports = ["model.keras"] if is_alone else []
                self.folder.mark_done(stage, seconds, metrics, self._cache, exports, self._asked)
        # Barrier: a stage's files must exist before the next stage begins.
        self.distribution.from_chief(None)

    def _is_left(self, stage):
        """Return whether a stage must run; mark later stages as not started if it is new."""
        folder, reporter, stages = self.folder, self.reporter, self.stages
        if stage not in self._again and folder.is_done(stage, stages):
            folder.check(stage)
            changed = folder.changed_cache(stage, stages)
            if not changed:
                reporter.stage_skipped(stage)
                for warning in folder.done(stage)["metrics"].get("complaints", ()):
                    reporter.note(f"{stage}: {warning}")
                return False
            reporter.note(f"{folder.path / changed[0]} is damaged: {stage} makes it again")
        if stage not in self._again and folder.done(stage) is None:
            # Now, so that it also holds if this stage is killed.
            folder.forget(stages[stages.index(stage) + 1 :])
        return True

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
        whole: Callable[[], Any] | None = None,
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
            whole: Function without arguments that returns the whole model with the present weights
                of this part, for `ModelCheckpoint`; only of the stage `WHOLE` of the model.

        Returns:
            dict, the metrics of the last epoch. A model without trainable weights is not trained
            and has those of `after_epoch`.

        Raises:
            RunFailed: If a loss or weight is not finite, no checkpoint can be used, or another
                process has stopped. The last checkpoint stays.
        """
        from keras_capsule_poe.training.fitting import fit

        if not model.trainable_variables:
            self.reporter.note(f"{stage}: kept as it is, since `trainable` is False")
            return dict(after_epoch()) if after_epoch else {}
        epochs, steps = schedule.over(len(self.data.train))
        order = {"batch_size": schedule.batch_size, "seed": self.settings.seed, "epochs": epochs}
        self.reporter.batch_size = schedule.batch_size
        self.reporter.stages |= self.settings.steps(len(self.data.train))
        before = self.stages[: self.stages.index(stage)]

        def heard(history):
            def all_of_them():
                return [*((name, self.folder.history(name)) for name in before), (stage, history)]

            own = self.reporter.callbacks(stage)
            return self.listeners.of(stage, own, model, all_of_them, whole)

        try:
            history = fit(
                model,
                lambda epoch, step: stream(first_epoch=epoch, first_step=step, **order),
                stage=stage,
                folder=self.folder.stage(stage),
                length=(epochs, steps),
                reporter=self.reporter,
                checkpoint_seconds=self.settings.checkpoint_seconds,
                run=self.folder.saved().get("run"),
                history=self._former_history(stage),
                after_epoch=after_epoch,
                picture=picture and (lambda name: picture(self.path(PICTURES) / name)),
                until=until,
                callbacks=callbacks,
                heard=heard if self.listeners else None,
                distribution=self.distribution,
                check=self.folder.check_held,
            )
        except Diverged as error:
            given = self.settings.numbers_given(stage)
            if not given:
                raise
            raise Diverged(
                f"{error} What was given may be why: {given}.", hint=error.hint
            ) from error
        return history[-1]

    def _former_history(self, stage):
        """Return the metrics of the epochs of a stage that is trained for more of them."""
        if stage not in self.goes_on or not self.is_chief:
            return []
        return read_json(self.folder.stage(stage) / HISTORY_FILE, hint=f"stage_fresh:{stage}")


def train(
    model: Any,
    model_dir: str | Path,
    load_data: "Callable[[], ImageData] | None" = None,
    reporter: Reporter | None = None,
    stage: str | None = None,
    fresh: bool = False,
    distribution: "Distribution | None" = None,
) -> Run:
    """Train all stages of a model that are not finished yet.

    No file changes before the settings, the images and the folder are known to fit together.

    Args:
        model: Model with `settings` and the method `train_parts(run)`.
        model_dir: Folder of the run.
        load_data: Function without arguments that returns an `ImageData`, called if images are
            needed; None: load the images that the settings name.
        reporter: `Reporter`; None: one that prints.
        stage: str, name of the last stage to run; None: run all. With `fresh` it is also the
            first stage to start over.
        fresh: bool, start over from `stage`, or from the first stage.
        distribution: `Distribution` that `devices.start` returned; None: one device. All its
            processes must make the same call, with a folder that all of them can read.

    Returns:
        `Run`.

    Raises:
        RunFailed: If the folder belongs to other settings or to other images, a stage fails, or
            another process has stopped.
        ConfigError: If settings do not go together, there is no such stage, or Keras does not use
            the TensorFlow backend.

    Example:

    >>> import tempfile
    >>> from keras_capsule_poe import registry
    >>> model = registry.create("rbm", dataset="digits", limit=50, rbm={"epochs": 1})
    >>> run = train(model, tempfile.mkdtemp(), reporter=Reporter(verbose=0))
    >>> sorted(run.metrics())
    ['export', 'rbm']
    """
    settings = model.settings
    _check_backend()
    reporter = reporter or Reporter()
    if settings.deterministic:
        fix_threads(reporter.note)
    stages = list(settings.stages)
    if stage is not None and stage not in stages:
        raise ConfigError(
            f"Model {settings.MODEL!r} has no stage {stage!r}; it has {', '.join(stages)}."
        )
    settings.check()
    if load_data is None:

        def load_data():
            return images.load_data(settings)

    run = Run(settings, RunFolder(model_dir), reporter, load_data, distribution)
    run.start = model.starts() if hasattr(model, "starts") else {}
    run.reporter = _follower(reporter, run.distribution)
    run.listeners = Listeners(reporter.own_callbacks, model)
    run.reporter.stages = dict.fromkeys(stages, 0)
    folder = run.folder
    # A last stage that runs again keeps its files until it has replaced them.
    first = stages.index(stage) if fresh and stage else 0
    is_export = fresh and first == len(stages) - 1
    run._again = tuple(stages[first:]) if is_export else ()
    cleared = stages[first:] if fresh and not is_export else []
    if run.is_chief:
        if not folder.path.exists():
            # Check first, so that a run that cannot be trained leaves no folder.
            check_writable(next(path for path in folder.path.absolute().parents if path.exists()))
            run.load()
            images.check(run.data, settings, stages)
        check_writable(folder.path)
    with folder.locked(run.reporter.note) if run.is_chief else contextlib.nullcontext():
        if run.is_chief:
            acquire(run, model, cleared, run._again)
        _follow(run)
        folder.hold(folder.saved()["run"])
        if settings.deterministic:
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()
        run.train(model, last=stage)
    run.listeners.finish(reporter.own_callbacks)
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
            "Models are trained on Keras' TensorFlow backend. "
            f"Received: the backend {keras.backend.backend()!r}"
        )
    import tensorflow as tf

    if tf.distribute.has_strategy():
        raise ConfigError(
            "Models are trained outside of `strategy.scope()`: make the model inside of it, and "
            "call `fit` after it. Received: a call inside of the scope"
        )
    check_global_settings()


def _follower(reporter, distribution):
    """Return this process's reporter: a silent one unless it is the chief."""
    if distribution.is_chief:
        return reporter
    number, workers = distribution.worker, distribution.workers
    reporter.note(f"Worker {number} of {workers}, from 0: worker 0 reports and writes.")
    return Reporter(verbose=0)


def _follow(run):
    """Check that every process has the chief's settings and images; raise where one does not."""
    who, settings = f"Worker {run.distribution.worker}", run.settings
    values, run.goes_on = run.distribution.from_chief([settings.to_dict(), run.goes_on])
    if run.is_chief:
        return
    other = "another model"
    if values["model"] == settings.MODEL:
        chief = type(settings).from_dict(values)
        settings.adopt(chief, {}, ())
        other = listing(settings.differences(chief))
    if other:
        raise RunFailed(f"{who} has other settings than the chief: {other}.")
    saved = run.folder.saved()
    if saved is None:
        raise RunFailed(f"{who} does not see the chief's files in {run.folder.path}.")
    run.load()
    other = images.changed(run.data, settings, saved["fingerprint"])
    if other:
        raise RunFailed(f"The {other} of {who.lower()} are not those of the chief.")
