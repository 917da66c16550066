"""Trainings that Python starts: their folder, what they report, and what an interrupt leaves."""

import contextlib
import os
import shutil
import tempfile
import warnings
import weakref

import keras

from keras_capsule_poe.errors import AnotherRun, BadUse, CapspoeError, TrainingWarning
from keras_capsule_poe.former_names import Metrics
from keras_capsule_poe.models.base.new_images import know_images
from keras_capsule_poe.training.progress import Reporter, quiet
from keras_capsule_poe.training.run import train

# How an interrupted training goes on, with a folder and without one.
WITH_FOLDER = "You can interrupt and resume at any time."
WITHOUT = "You can interrupt: the next `fit` on these images goes on from there."


class TemporaryFolder:
    """A folder of its own, deleted with its last reference.

    Attributes:
        path: Path of the folder.
        delete: Function that deletes it now.
    """

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="keras-capsule-poe-")
        self.delete = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class Fit:
    """What the engine trains if `fit` is called: the parts of a model, with settings of this call.

    Args:
        model: `TrainedModel`. Training goes on from its parts, which stay as they are.
        settings: `Settings`.

    Attributes:
        run: The `Run`, once the folder is known to be of this training; else None.
    """

    def __init__(self, model, settings):
        self.model, self.settings, self.run = model, settings, None
        self.WHOLE = model.WHOLE

    def starts(self):
        """Return the parts that training goes on from, by stage."""
        return self.model.starts()

    def has_part_of(self, run, stage):
        """Return whether the model has the part that a stage of a run has trained."""
        return self.model.has_part_of(run, stage)

    def train_parts(self, run):
        """Train the parts of the model in a run."""
        self.run, run.name = run, self.model.given_name
        self.model.train_parts(run)

    def in_folder(self, folder, load_data, verbose, callbacks, distribution=None):
        """Train in a folder, or without one in a temporary one, and return the `Run`.

        The temporary folder stays with the model, so that the next call can go on from there.
        """
        if folder is not None:
            options = verbose, callbacks, WITH_FOLDER, True, distribution
            return run_parts(self, load_data, folder, *options)
        # Not an attribute of Keras, which it would copy and save.
        kept = vars(self.model)
        options = verbose, callbacks, WITHOUT, False, distribution
        if "_unfinished" in kept:
            with contextlib.suppress(AnotherRun):
                return run_parts(self, load_data, kept["_unfinished"].path, *options)
        kept["_unfinished"] = TemporaryFolder()
        return run_parts(self, load_data, kept["_unfinished"].path, *options)

    @contextlib.contextmanager
    def keeping_parts(self):
        """Context that gives the finished parts to a model without trained ones if it fails."""
        try:
            yield
        except BaseException:
            if self.run is not None and not self.model.is_fitted:
                with contextlib.suppress(CapspoeError):
                    self.model.take_finished(self.run)
            raise


def run_parts(
    model, load_data, folder, verbose, callbacks, resumes, exports=True, distribution=None
):
    """Train the parts of a model in a folder and return the `Run`; see `Reporter` for `resumes`."""
    if not isinstance(folder, (str, os.PathLike)) or not str(folder):
        raise BadUse(f"`folder` must be a path, or None. Received: folder={folder!r}")
    reporter = Reporter(verbose, callbacks=() if callbacks is None else callbacks, notes=False)
    reporter.resumes = resumes
    # The last stage exports files that nobody reads from a temporary folder.
    last = None if exports else list(model.settings.stages)[-2]
    with reporter, quiet():
        return train(model, folder, load_data, reporter, stage=last, distribution=distribution)


def trained_model(model, load_data, folder=None, verbose="auto", callbacks=()):
    """Train a model that has no parts yet and return the trained one.

    Without a folder nothing is exported, and all files are temporary.
    """
    if folder is None:
        place = TemporaryFolder()
        run = run_parts(model, load_data, place.path, verbose, callbacks, "", exports=False)
    else:
        place, run = None, run_parts(model, load_data, folder, verbose, callbacks, WITH_FOLDER)
    trained = type(model).from_parts(run)
    know_images(trained, run.folder)
    if getattr(trained, "settings", None) is not None:
        trained.settings.forget_images()
    trained.history = histories(run)
    if place:
        place.delete()
    return trained


def histories(run):
    """Return a dict of `keras.callbacks.History` by stage, and warn of stages that failed."""
    found = {}
    for stage in run.stages:
        if run.settings.trained(stage):
            found[stage] = _history(run.folder.history(stage))
            for line in run.folder.done(stage)["metrics"].get("complaints", ()):
                warnings.warn(f"{stage}: {line}", TrainingWarning, stacklevel=4)
    return {name: history for name, history in found.items() if history.epoch}


def _history(epochs):
    """Return the `History` of a list of metrics per epoch."""
    history = keras.callbacks.History()
    history.epoch = [epoch["epoch"] - 1 for epoch in epochs]
    names = dict.fromkeys(name for epoch in epochs for name in epoch if name != "epoch")
    history.history = Metrics({name: [epoch.get(name) for epoch in epochs] for name in names})
    return history
