"""A training run: the stages in order, each resumed or skipped as far as it has come."""

import dataclasses
import shutil
import time
from pathlib import Path

from keras_capsule_poe.errors import ConfigError, RunFailed
from keras_capsule_poe.io.files import check_writable, read_json, write_json
from keras_capsule_poe.training.config import RunConfig
from keras_capsule_poe.training.precision import best_precision

# What each stage depends on: its own section and those before it.
STAGES = {
    "autoencoder": ("autoencoder",),
    "features": ("primary",),
    "encoder": ("encoder",),
    "decoder": ("decoder",),
    "export": (),
}
RUN_FILE = "run.json"


@dataclasses.dataclass
class Run:
    """What the stages of a run share.

    Attributes:
        config: `RunConfig`.
        folder: Path of the model folder.
        data: `ImageData`, or None until a stage needs it.
        reporter: `Reporter`.
    """

    config: RunConfig
    folder: Path
    load_data: object
    reporter: object

    def __post_init__(self):
        self._data = None

    @property
    def data(self):
        """The images, loaded when first asked for."""
        if self._data is None:
            self._data = self.load_data()
            self._check_fingerprint()
        return self._data

    def stage_folder(self, stage):
        return self.folder / stage

    def is_done(self, stage):
        return (self.stage_folder(stage) / "done.json").exists()

    def mark_done(self, stage, seconds, metrics):
        write_json(self.stage_folder(stage) / "done.json", {"seconds": seconds, "metrics": metrics})

    def metrics(self, stage):
        """What a finished stage measured."""
        return read_json(self.stage_folder(stage) / "done.json")["metrics"]

    def clear(self, stage):
        shutil.rmtree(self.stage_folder(stage), ignore_errors=True)

    def _check_fingerprint(self):
        path = self.folder / RUN_FILE
        saved = read_json(path)
        found = {"train": self._data.train.fingerprint, "test": self._data.test.fingerprint}
        if saved.get("fingerprint") is None:
            write_json(path, {**saved, "fingerprint": found})
        elif saved["fingerprint"] != found:
            raise RunFailed(
                f"The images of {self.config.dataset} are not those that {self.folder} was "
                "trained on. Choose another --model-dir, or start over with --fresh."
            )


def train(config, model_dir, load_data, reporter, stage=None, fresh=False):
    """Runs every stage that is not done yet.

    Args:
        config: `RunConfig`.
        model_dir: Folder of the run.
        load_data: Function of nothing to an `ImageData`, called when images are needed.
        reporter: `Reporter`.
        stage: Name of the last stage to run; `None`: all. With `fresh`, the first to do anew.
        fresh: Starts over: all of it, or from `stage` on.

    Returns:
        `Run`.

    Raises:
        RunFailed: If the folder belongs to another configuration, or a stage fails.
        ConfigError: If the configuration has values out of range.
    """
    from keras_capsule_poe.families.capsule_poe import stages

    config.check()
    folder = Path(model_dir)
    check_writable(folder)
    if stage is not None and stage not in STAGES:
        raise ConfigError(f"Unknown stage {stage!r}. Stages: {', '.join(STAGES)}")
    if config.autoencoder.precision == "auto":
        config.autoencoder.precision = best_precision()
    run = Run(config, folder, load_data, reporter)
    _open(run, stage, fresh)
    if config.deterministic:
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    names = list(STAGES)
    last = names.index(stage) if stage else len(names) - 1
    for name in names[: last + 1]:
        if run.is_done(name) and not (name == "features" and _features_missing(run)):
            reporter.stage_skipped(name)
            continue
        started = time.perf_counter()
        metrics = getattr(stages, name)(run)
        seconds = time.perf_counter() - started
        run.mark_done(name, seconds, metrics)
        reporter.stage_finished(name, seconds)
    return run


def _features_missing(run):
    """The features are a cache, removed after the capsule stages; one done anew needs them."""
    needed = not (run.is_done("encoder") and run.is_done("decoder"))
    return needed and not (run.stage_folder("features") / "train.npy").exists()


def _open(run, stage, fresh):
    """Claims the folder for this configuration, or refuses."""
    path = run.folder / RUN_FILE
    if not path.exists() and _foreign(run.folder):
        raise RunFailed(
            f"{run.folder} holds files but no training run. Choose another --model-dir."
        )
    names = list(STAGES)
    if fresh:
        for name in names[names.index(stage) if stage else 0 :]:
            run.clear(name)
        run.clear("export")
    if path.exists() and not (fresh and stage is None):
        saved = read_json(path)
        _refuse_differences(run, RunConfig.from_dict(saved["config"]), fresh)
        write_json(path, {**saved, "config": run.config.to_dict()})
    else:
        write_json(path, {"config": run.config.to_dict(), "fingerprint": None})


def _refuse_differences(run, saved, fresh):
    """Settings of a stage that has begun must stay; those of stages to come may change."""
    differences = run.config.differences(saved)
    begun = {
        section
        for name, needed in STAGES.items()
        if run.stage_folder(name).exists()
        for section in needed
    }
    held = {
        name: values
        for name, values in differences.items()
        if name.split(".")[0] in begun or ("." not in name and begun)
    }
    if held:
        shown = "; ".join(f"{name}: {old!r} -> {new!r}" for name, (new, old) in held.items())
        raise RunFailed(
            f"{run.folder} was trained with another configuration ({shown}). Use the old "
            "values, choose another --model-dir, or start over with --fresh."
        )


def _foreign(folder):
    return any(not entry.name.startswith(".") for entry in folder.iterdir())
