"""Folder of a run: its configuration, its stages' files, and the digests that verify them."""

import contextlib
from pathlib import Path

from keras_capsule_poe.errors import ConfigError, RunFailed
from keras_capsule_poe.former_names import Metrics
from keras_capsule_poe.io.atomic import locked, remove, remove_stale_files
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
# Pictures next to the folders of the stages, in runs that did not record which they wrote.
_PICTURES = [f"samples{end}.png" for end in ("", "-prior", "-half_space", "-posterior")]
_PICTURES += ["reconstructions.png", "traverse.png"]


class RunFolder:
    """Folder of one run.

    `run.json` holds the settings, the images' fingerprints and a unique run number. Each stage has
    a folder of its name with all files that it writes; the last stage, which exports the model,
    also writes `model.keras`, pictures and the SavedModel next to them. A finished stage has a
    `done.json` in it, with the run number and the digests of its files.

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

    def save(self, settings, fingerprint, run, more=()):
        """Write `run.json` from settings, fingerprints, the run number and further values."""
        values = {"config": settings.to_dict(), "fingerprint": fingerprint, "run": run}
        write_record(self.path / RUN_FILE, {**values, **dict(more)})

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

    def has_begun(self, name):
        """Return whether the folder of a stage holds any file."""
        folder = self.stage(name)
        return folder.is_dir() and any(folder.iterdir())

    def done(self, name):
        """Return the `done.json` of a stage, or None; raise RunFailed if it is damaged.

        It has `seconds` and `metrics`, and the digests of `files` and `cache` by name.
        """
        path = self.stage(name) / DONE_FILE
        if not has_record(path):
            return None
        # Older versions wrote no digests of caches, and other names of metrics.
        found = {"cache": {}, **read_record(path, f"stage_fresh:{name}", _is_done)}
        return {**found, "metrics": Metrics(found["metrics"])}

    def metrics(self, stages):
        """Return the metrics of each finished one of the stages, by name."""
        found = {name: self.done(name) for name in stages}
        return {name: done["metrics"] for name, done in found.items() if done}

    def card(self, settings):
        """Return the run's part of a model card: settings, data set, seed and metrics."""
        return {
            "config": settings.to_dict(),
            "data": settings.dataset,
            "seed": settings.seed,
            "metrics": self.metrics(settings.STAGES),
            "class_names": self.class_names,
        }

    def mark_done(self, name, seconds, metrics, cache=(), exports=(), asked=None):
        """Write the `done.json` of a stage, then delete its checkpoints.

        The names in `cache` are files that only later stages read, those in `exports` files that
        lie outside the folder of the stage. The stage wrote no files but the `asked` ones and those
        in `asked` folders; None: all in its folder.
        """
        own = (path for path in self.stage(name).rglob("*") if path.is_file())
        own = (path.relative_to(self.path) for path in own)
        skipped = (CHECKPOINTS, DONE_FILE, HISTORY_FILE)
        names = [str(path) for path in own if not _is_hidden(path) and path.parts[1] not in skipped]
        if asked is not None:
            names = [each for each in names if {each, *map(str, Path(each).parents)} & set(asked)]
        files = {each: digest(self.path / each) for each in sorted({*names, *exports} - {*cache})}
        cached = {each: digest(self.path / each) for each in cache}
        self.check_held()
        done = {"seconds": seconds, "metrics": metrics, "files": files, "cache": cached}
        done["run"] = self.saved().get("run")
        pictures = [each for each in asked or () if each.endswith(".png") and "/" not in each]
        if asked is not None:
            done["pictures"] = sorted(pictures)
        history = self.stage(name) / HISTORY_FILE
        done["history"] = digest(history) if history.exists() else None
        write_record(self.stage(name) / DONE_FILE, done)
        remove(self.stage(name) / CHECKPOINTS)

    def history(self, name):
        """Return the metrics of each epoch of a finished stage; raise RunFailed if changed."""
        path, done = self.stage(name) / HISTORY_FILE, self.done(name)
        if done is None or not path.exists():
            return []
        self.check_run(name)
        # Older versions wrote no digest of it.
        if done.get("history", digest(path)) != digest(path):
            raise RunFailed(
                f"{path} is not what stage {name} wrote: damaged, or of another run. Without it "
                "all else works."
            )
        return [Metrics(epoch) for epoch in read_json(path)]

    def forget(self, stages):
        """Mark stages as not started; their output files stay until they run again."""
        for name in stages:
            remove_record(self.stage(name) / DONE_FILE)
            # Otherwise they would be resumed on top of other weights.
            remove(self.stage(name) / CHECKPOINTS)

    def check_run(self, name):
        """Raise RunFailed if a finished stage has another run number than the folder."""
        done = self.done(name)
        if done and done.get("run") != self.saved().get("run"):
            raise RunFailed(
                f"{self.stage(name)} is of another run than {self.path / RUN_FILE}.",
                hint=f"stage_fresh:{name}",
            )

    def check(self, name):
        """Raise RunFailed if files of a finished stage are missing, changed or of another run."""
        self.check_run(name)
        for file, wanted in self.done(name)["files"].items():
            path = self.path / file
            if not path.exists():
                problem = "is missing"
            elif digest(path) != wanted:
                problem = f"is not what stage {name} wrote: damaged, or of another run"
            else:
                continue
            raise RunFailed(f"{path} {problem}.", hint=f"stage_fresh:{name}")

    def is_done(self, name, stages, cleared=()):
        """Return whether a stage is finished, with all files that unfinished stages still need.

        `stages` are all stages of the run, and those in `cleared` count as unfinished.
        """
        done = self.done(name)
        if done is None:
            return False
        is_last = name == stages[-1]
        if is_last and not all((self.path / file).exists() for file in done["files"]):
            return False
        return all((self.path / file).exists() for file in self._cache(name, stages, cleared))

    def changed_cache(self, name, stages):
        """Return the names of a stage's cache files that have changed and are still needed."""
        cache = self._cache(name, stages)
        return [file for file, wanted in cache.items() if digest(self.path / file) != wanted]

    def _cache(self, name, stages, cleared=()):
        """Return the cache files of a stage that unfinished or `cleared` later stages read."""
        # The last stage exports what the others trained, and reads no cache.
        later = stages[stages.index(name) + 1 : -1]
        is_needed = any(s in cleared or self.done(s) is None for s in later)
        return self.done(name)["cache"] if is_needed else {}

    def tidy(self, stages):
        """Delete the stale temporary files and checkpoints that killed processes left."""
        folders = [self.stage(name) for name in stages]
        checkpoints = [folder / CHECKPOINTS for folder in folders]
        for folder in (self.path, self.path / PICTURES, *folders, *checkpoints):
            remove_stale_files(folder)
        for name in stages:
            if self.done(name):
                remove(self.stage(name) / CHECKPOINTS)

    def clear(self, name, is_last):
        """Delete the files that a stage wrote; raise RunFailed if one cannot be deleted."""
        done = None
        with contextlib.suppress(RunFailed):
            done = self.done(name)
        # First, because a partly deleted stage must not count as done.
        remove_record(self.stage(name) / DONE_FILE)
        if is_last:
            for file in ("model.keras", *(done or {}).get("pictures", _PICTURES)):
                remove(self.path / Path(file).name)
        stage = self.stage(name)
        remove_stale_files(stage)
        own = (stage / HISTORY_FILE, stage / CHECKPOINTS, stage / "model.keras")
        # One that has not finished replaces its other files as it writes them.
        known = (*done["files"], *done["cache"]) if done else ()
        for path in (*own, *(self.path / file for file in known)):
            # A record that came from elsewhere names no file of others.
            if ".." not in path.parts and self.path in path.parents:
                remove(path)

    def drop_cache(self, stages):
        """Delete the cache files of finished stages."""
        for name in stages:
            for file in (self.done(name) or {"cache": {}})["cache"]:
                remove(self.path / file)


def _is_hidden(path):
    return any(part.startswith(".") for part in path.parts)


def _is_run(values):
    """Return whether values are those of a `run.json`."""
    config = values.get("config") if isinstance(values, dict) else None
    words = ("dataset", "model", "preset", "recipe")
    is_run = isinstance(config, dict) and "dataset" in config
    is_run = is_run and all(isinstance(config.get(word, ""), str) for word in words)
    return is_run and all(_has_kind(values[name], *_KINDS[name]) for name in {*_KINDS} & {*values})


# Types of the values of a `run.json` and of what these hold.
_KINDS = {
    "fingerprint": ((dict, type(None)), (str, type(None))),
    "run": ((str, type(None)), str),
    "preparation": ((dict, type(None)), object),
    "class_names": ((list, type(None)), str),
    "data_path": (str, str),
    "paths": (dict, str),
    "start": (dict, str),
    "goes_on": (list, str),
}


def _has_kind(value, kind, inner):
    """Return whether a value and all that it holds are of these types."""
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, kind) and all(isinstance(each, inner) for each in held)


def _is_done(values):
    """Return whether values are those of a `done.json`."""
    kinds = {"seconds": (int, float), "metrics": dict, "files": dict}
    if not isinstance(values, dict) or not isinstance(values.get("cache", {}), dict):
        return False
    return all(isinstance(values.get(name), kind) for name, kind in kinds.items())
