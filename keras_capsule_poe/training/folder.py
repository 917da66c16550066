"""Folder of a run: its configuration, its stages' files, and the digests that verify them."""

import contextlib
from pathlib import Path

from keras_capsule_poe.errors import ConfigError, RunFailed
from keras_capsule_poe.io.atomic import clear_folder, locked, remove, remove_stale_files
from keras_capsule_poe.io.records import (
    digest,
    has_record,
    read_json,
    read_record,
    remove_record,
    write_record,
)

RUN_FILE, DONE_FILE, LOCK_FILE = "run.json", "done.json", ".lock"
PICTURES = "pictures"
# In a stage's folder: checkpoints during training, and the metrics of each epoch.
CHECKPOINTS = "checkpoints"
HISTORY_FILE = "history.json"


class RunFolder:
    """Folder of one run.

    `run.json` holds the configuration, the images' fingerprints and a unique run number. Each
    stage has a folder of its name. A finished stage has a `done.json` in it, with the run number
    and the digests of its output files.

    Args:
        path: Path of the folder; it need not exist.

    Raises:
        ConfigError: If the path has characters that TensorFlow takes for patterns.

    Example:

    >>> import tempfile
    >>> folder = RunFolder(tempfile.mkdtemp())
    >>> folder.saved() is None, folder.is_foreign(), folder.contents()
    (True, False, [])
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self._held = Path(path), None
        try:
            whole = self.path.absolute()
        except FileNotFoundError as error:
            raise ConfigError("The working folder no longer exists.", hint="model_dir") from error
        if set(str(whole)) & set("[]*?\\"):
            raise ConfigError(
                "A model folder's path must not hold any of [ ] * ? \\, which TensorFlow takes "
                f"for patterns. Received: {whole}",
                hint="model_dir",
            )

    @contextlib.contextmanager
    def locked(self, note):
        """Context in which no other process trains here; raise RunFailed if one does.

        `note` is called with a line of text if the file system has no locks.
        """

        def held():
            raise RunFailed(
                f"Another process is training in {self.path}, and must end first.",
                hint="model_dir",
            ) from None

        with locked(self.path / LOCK_FILE, held, note):
            yield

    def saved(self):
        """Return the dict in `run.json`, or None without one; raise RunFailed if it is damaged."""
        path = self.path / RUN_FILE
        if not has_record(path):
            return None
        return read_record(path, "model_dir", _is_run)

    def readable(self):
        """Return the result of `saved`; raise RunFailed if this version cannot read the run."""
        values = self.saved()
        if values is None:
            raise RunFailed(f"{self.path} holds no training run.", hint="train")
        if not {"model", "held_out"} <= set(values["config"]):
            raise RunFailed(
                f"{self.path} was trained by an older version, whose files this one does not "
                "read; its SavedModel still works.",
                hint="model_dir",
            )
        return values

    def hold(self, run):
        """Remember the run number that `check_held` asks for."""
        self._held = run

    def check_held(self):
        """Raise RunFailed if the folder no longer holds the run that this process trains."""
        if self._held is None:
            return
        try:
            found = (self.saved() or {}).get("run")
        except RunFailed:
            found = None
        if found != self._held:
            raise RunFailed(
                f"{self.path} no longer holds this run: it was moved, deleted or replaced during "
                "training. Nothing more was written. The last checkpoint is where the run is now.",
                hint="model_dir",
            )

    def save(self, config, fingerprint, run, more=()):
        """Write `run.json` from a `RunConfig`, fingerprints, the run number and further values."""
        values = {"config": config.to_dict(), "fingerprint": fingerprint, "run": run, **dict(more)}
        write_record(self.path / RUN_FILE, values)

    @property
    def class_names(self):
        """Tuple of the names of the labels, or None if the run has no names."""
        saved = self.saved() or {}
        return tuple(saved.get("class_names") or ()) or None

    def is_foreign(self):
        """Return whether the folder holds files but no run."""
        return not has_record(self.path / RUN_FILE) and bool(self.contents())

    def contents(self):
        """Return the names in the folder, except `run.json` and hidden files."""
        names = (entry.name for entry in self.path.iterdir())
        return sorted(name for name in names if name != RUN_FILE and not name.startswith("."))

    def stage(self, name):
        """Return the path of a stage's folder."""
        return self.path / name

    def has_begun(self, stage):
        """Return whether the folder of a `Stage` holds any file."""
        folder = self.stage(stage.name)
        return folder.is_dir() and any(folder.iterdir())

    def done(self, name):
        """Return the `done.json` of the stage `name`, or None; raise RunFailed if it is damaged.

        It has `seconds` and `metrics`, and the digests of `files` and `cache` by name.
        """
        path = self.stage(name) / DONE_FILE
        if not has_record(path):
            return None
        # Older versions wrote no digests of caches.
        return {"cache": {}, **read_record(path, f"stage_fresh:{name}", _is_done)}

    def metrics(self, family):
        """Return the metrics of each finished stage of a `Family`, by the stage's name."""
        found = {stage.name: self.done(stage.name) for stage in family.stages}
        return {name: done["metrics"] for name, done in found.items() if done}

    def card(self, config):
        """Return the run's part of a model card: configuration, data set, seed and metrics."""
        return {
            "config": config.to_dict(),
            "data": config.dataset,
            "seed": config.seed,
            "metrics": self.metrics(config.family),
            "class_names": self.class_names,
        }

    def mark_done(self, stage, seconds, metrics):
        """Write the `done.json` of a `Stage`, then delete its checkpoints."""
        files, cache = (
            {name: digest(self.path / name) for name in names}
            for names in (stage.writes, stage.cache)
        )
        self.check_held()
        done = {"seconds": seconds, "metrics": metrics, "files": files, "cache": cache}
        done["run"] = self.saved().get("run")
        history = self.stage(stage.name) / HISTORY_FILE
        done["history"] = digest(history) if history.exists() else None
        write_record(self.stage(stage.name) / DONE_FILE, done)
        remove(self.stage(stage.name) / CHECKPOINTS)

    def history(self, stage):
        """Return the metrics of each epoch of a finished `Stage`; raise RunFailed if changed."""
        path, done = self.stage(stage.name) / HISTORY_FILE, self.done(stage.name)
        if done is None or not path.exists():
            return []
        self.check_run(stage)
        # Older versions wrote no digest of it.
        if done.get("history", digest(path)) != digest(path):
            raise RunFailed(
                f"{path} is not what stage {stage.name} wrote: damaged, or of another run. Without "
                "it all else works."
            )
        return read_json(path)

    def forget(self, stages):
        """Mark stages as not started; their output files stay until they run again."""
        for stage in stages:
            remove_record(self.stage(stage.name) / DONE_FILE)
            # Otherwise they would be resumed on top of other weights.
            remove(self.stage(stage.name) / CHECKPOINTS)

    def missing(self, stage):
        """Return the names of missing output files of a finished `Stage`."""
        return [name for name in stage.writes if not (self.path / name).exists()]

    def check_run(self, stage):
        """Raise RunFailed if a finished `Stage` has another run number than the folder."""
        done = self.done(stage.name)
        if done and done.get("run") != self.saved().get("run"):
            raise RunFailed(
                f"{self.stage(stage.name)} is of another run than {self.path / RUN_FILE}.",
                hint=f"stage_fresh:{stage.name}",
            )

    def check(self, stage):
        """Raise RunFailed if files of a finished `Stage` are missing, changed or of another run."""
        self.check_run(stage)
        for name, wanted in self.done(stage.name)["files"].items():
            path = self.path / name
            if not path.exists():
                problem = "is missing"
            elif digest(path) != wanted:
                problem = f"is not what stage {stage.name} wrote: damaged, or of another run"
            else:
                continue
            raise RunFailed(f"{path} {problem}.", hint=f"stage_fresh:{stage.name}")

    def is_done(self, stage, stages, cleared=()):
        """Return whether a stage is finished, with all files that unfinished stages still need.

        `stages` are all stages of the run, and those in `cleared` count as unfinished.
        """
        if self.done(stage.name) is None or (stage is stages[-1] and self.missing(stage)):
            return False
        needed = self._needed_cache(stage, stages, cleared)
        return all((self.path / name).exists() for name in needed)

    def changed_cache(self, stage, stages):
        """Return the names of cache files that have changed and that later stages need."""
        wanted = self.done(stage.name)["cache"]
        known = [name for name in self._needed_cache(stage, stages) if name in wanted]
        return [name for name in known if digest(self.path / name) != wanted[name]]

    def _needed_cache(self, stage, stages, cleared=()):
        """Return the names of cache files that unfinished or `cleared` later stages read."""
        later = stages[stages.index(stage) + 1 :]
        waiting = [s for s in later if s in cleared or self.done(s.name) is None]
        return [name for name in stage.cache if any(name in other.reads for other in waiting)]

    def tidy(self, stages):
        """Delete the stale temporary files and checkpoints that killed processes left."""
        folders = [self.stage(stage.name) for stage in stages]
        checkpoints = [folder / CHECKPOINTS for folder in folders]
        for folder in (self.path, self.path / PICTURES, *folders, *checkpoints):
            remove_stale_files(folder)
        for stage in stages:
            if self.done(stage.name):
                remove(self.stage(stage.name) / CHECKPOINTS)

    def clear(self, stage):
        """Delete all files of a `Stage`; raise RunFailed if one cannot be deleted."""
        # First, because a partly deleted stage must not count as done.
        remove_record(self.stage(stage.name) / DONE_FILE)
        for name in (*stage.writes, *stage.cache):
            remove(self.path / name)
        for pattern in stage.pictures:
            for path in self.path.glob(pattern):
                remove(path)
        if self.stage(stage.name).exists():
            clear_folder(self.stage(stage.name))

    def drop_cache(self, stages):
        """Delete the cache files of stages."""
        for stage in stages:
            for name in stage.cache:
                remove(self.path / name)


def _is_run(values):
    """Return whether values are those of a `run.json`."""
    config = values.get("config") if isinstance(values, dict) else None
    words = ("dataset", "model", "recipe")
    is_run = isinstance(config, dict) and "dataset" in config
    return is_run and all(isinstance(config.get(word, ""), str) for word in words)


def _is_done(values):
    """Return whether values are those of a `done.json`."""
    kinds = {"seconds": (int, float), "metrics": dict, "files": dict}
    if not isinstance(values, dict) or not isinstance(values.get("cache", {}), dict):
        return False
    return all(isinstance(values.get(name), kind) for name, kind in kinds.items())
