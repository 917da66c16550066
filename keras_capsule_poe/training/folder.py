"""A run's folder: what it is, what its stages left, and whether that is still what they wrote."""

import contextlib
from pathlib import Path

from keras_capsule_poe.errors import ConfigError, RunFailed
from keras_capsule_poe.io.files import clear_folder, digest, read_json, remove
from keras_capsule_poe.io.leftovers import remove_leftovers
from keras_capsule_poe.io.locks import locked
from keras_capsule_poe.io.records import has_record, read_record, remove_record, write_record

RUN_FILE, DONE_FILE, LOCK_FILE = "run.json", "done.json", ".lock"
PICTURES = "pictures"
# In a stage's folder, while it trains; and what was measured after each epoch.
CHECKPOINTS = "checkpoints"
HISTORY_FILE = "history.json"


class RunFolder:
    """The folder of one run.

    `run.json` holds the configuration, the images' fingerprints and a number that no other run
    has; each stage has a folder of its name, and `done.json` in it once it is done, with the
    run's number and the digests of the files that it wrote.

    Args:
        path: The folder; it need not exist.

    Raises:
        ConfigError: If TensorFlow could not work in a folder of this name.
    """

    def __init__(self, path):
        self.path = Path(path)
        odd = sorted(set(str(self.path.absolute())) & set("[]*?\\"))
        if odd:
            raise ConfigError(
                "A model folder's path must not hold any of [ ] * ? \\, which TensorFlow takes "
                f"for patterns. Received: {self.path}",
                mend="model_dir",
            )

    @contextlib.contextmanager
    def locked(self, note):
        """While open, no other process trains here; the lock ends with the process.

        Args:
            note: Function of a line, told where the file system has no locks.

        Raises:
            RunFailed: If another process holds it.
        """

        def held():
            raise RunFailed(
                f"Another process is training in {self.path}, and must end first.",
                mend="model_dir",
            ) from None

        with locked(self.path / LOCK_FILE, held, note):
            yield

    def saved(self):
        """What `run.json` holds, `config` and `fingerprint`; None where there is none.

        Raises:
            RunFailed: If it is damaged, or not of this program.
        """
        path = self.path / RUN_FILE
        if not has_record(path):
            return None
        values = read_record(path, mend="model_dir")
        config = values.get("config") if isinstance(values, dict) else None
        words = ("dataset", "model", "recipe")
        is_run = isinstance(config, dict) and "dataset" in config
        if not is_run or not all(isinstance(config.get(word, ""), str) for word in words):
            raise RunFailed(f"{path} does not describe a training run.", mend="model_dir")
        return values

    def readable(self):
        """What `saved` gives, of a run whose files this version reads.

        Raises:
            RunFailed: If there is none, or an older version trained it.
        """
        values = self.saved()
        if values is None:
            raise RunFailed(f"{self.path} holds no training run.", mend="train")
        if not {"model", "held_out"} <= set(values["config"]):
            raise RunFailed(
                f"{self.path} was trained by an older version, whose files this one does not "
                "read; its SavedModel still works.",
                mend="model_dir",
            )
        return values

    def save(self, config, fingerprint, run):
        """Writes `run.json`; `run` is the run's number."""
        values = {"config": config.to_dict(), "fingerprint": fingerprint, "run": run}
        write_record(self.path / RUN_FILE, values)

    def is_foreign(self):
        """Whether it holds files, but no run."""
        return not has_record(self.path / RUN_FILE) and bool(self.contents())

    def contents(self):
        """Names of what it holds, but for `run.json` and what is hidden."""
        names = (entry.name for entry in self.path.iterdir())
        return sorted(name for name in names if name != RUN_FILE and not name.startswith("."))

    def stage(self, name):
        """Path of a stage's folder."""
        return self.path / name

    def has_begun(self, stage):
        """Whether a stage left anything here."""
        folder = self.stage(stage.name)
        return folder.is_dir() and any(folder.iterdir())

    def done(self, name):
        """What a finished stage left in `done.json`: `seconds`, `metrics` and `files`; or None.

        Raises:
            RunFailed: If it is damaged.
        """
        path = self.stage(name) / DONE_FILE
        if not has_record(path):
            return None
        values = read_record(path, mend=f"stage_fresh:{name}")
        # Older versions have no digests of caches.
        kinds = {"seconds": (int, float), "metrics": dict, "files": dict, "cache": dict}
        values = {"cache": {}, **values} if isinstance(values, dict) else {}
        is_record = kinds.keys() <= values.keys()
        if not is_record or not all(isinstance(values[k], kind) for k, kind in kinds.items()):
            raise RunFailed(
                f"{path} is damaged; the stage must be trained again.", mend=f"stage_fresh:{name}"
            )
        return values

    def metrics(self, family):
        """What each finished stage of a family measured, by stage."""
        found = {stage.name: self.done(stage.name) for stage in family.stages}
        return {name: done["metrics"] for name, done in found.items() if done}

    def card(self, config):
        """What a model card tells of a run: its `RunConfig`, images, seed and figures."""
        return {
            "config": config.to_dict(),
            "data": config.dataset,
            "seed": config.seed,
            "metrics": self.metrics(config.family),
        }

    def mark_done(self, stage, seconds, metrics):
        """Writes `done.json`; what only an unfinished stage needs goes afterwards."""
        files, cache = (
            {name: digest(self.path / name) for name in names}
            for names in (stage.writes, stage.cache)
        )
        done = {"seconds": seconds, "metrics": metrics, "files": files, "cache": cache}
        done["run"] = self.saved().get("run")
        history = self.stage(stage.name) / HISTORY_FILE
        done["history"] = digest(history) if history.exists() else None
        write_record(self.stage(stage.name) / DONE_FILE, done)
        remove(self.stage(stage.name) / CHECKPOINTS)

    def history(self, stage):
        """What was measured after each epoch of a finished stage, a list of dicts; none: empty.

        Raises:
            RunFailed: If the file is not what the stage wrote, or the stage is of another run.
        """
        path, done = self.stage(stage.name) / HISTORY_FILE, self.done(stage.name)
        if done is None or not path.exists():
            return []
        self.check_run(stage)
        # Stages of older versions have no digest of it.
        if done.get("history", digest(path)) != digest(path):
            raise RunFailed(
                f"{path} is not what stage {stage.name} wrote: damaged, or of another run. Without "
                "it all else works."
            )
        return read_json(path)

    def forget(self, stages):
        """Marks stages as not done and not begun; the files that they left stay until they run."""
        for stage in stages:
            remove_record(self.stage(stage.name) / DONE_FILE)
            # They would be taken up again, with other weights below them.
            remove(self.stage(stage.name) / CHECKPOINTS)

    def missing(self, stage):
        """Files of a finished stage that are gone."""
        return [name for name in stage.writes if not (self.path / name).exists()]

    def check_run(self, stage):
        """Compares the run of a stage, if it is done, with the folder's.

        Raises:
            RunFailed: If it is another one.
        """
        done = self.done(stage.name)
        if done and done.get("run") != self.saved().get("run"):
            raise RunFailed(
                f"{self.stage(stage.name)} is of another run than {self.path / RUN_FILE}.",
                mend=f"stage_fresh:{stage.name}",
            )

    def check(self, stage):
        """Compares the files of a finished stage with what it wrote.

        Raises:
            RunFailed: If one is gone, or another, or the whole stage is of another run.
        """
        self.check_run(stage)
        for name, wanted in self.done(stage.name)["files"].items():
            path = self.path / name
            if not path.exists():
                problem = "is missing"
            elif digest(path) != wanted:
                problem = f"is not what stage {stage.name} wrote: damaged, or of another run"
            else:
                continue
            raise RunFailed(f"{path} {problem}.", mend=f"stage_fresh:{stage.name}")

    def is_done(self, stage, stages, cleared=()):
        """Whether nothing of a stage is left to do; caches may be gone once nobody reads them.

        Args:
            stage: `Stage`.
            stages: Sequence of all of the run.
            cleared: Those that count as not done, whatever they left.
        """
        if self.done(stage.name) is None or (stage is stages[-1] and self.missing(stage)):
            return False
        needed = self._needed_cache(stage, stages, cleared)
        return all((self.path / name).exists() for name in needed)

    def changed_cache(self, stage, stages):
        """Files of a finished stage's cache that will be read and are not what it wrote."""
        wanted = self.done(stage.name)["cache"]
        known = [name for name in self._needed_cache(stage, stages) if name in wanted]
        return [name for name in known if digest(self.path / name) != wanted[name]]

    def _needed_cache(self, stage, stages, cleared=()):
        """Files of a stage's cache that stages which are not done, or are `cleared`, will read."""
        later = stages[stages.index(stage) + 1 :]
        waiting = [s for s in later if s in cleared or self.done(s.name) is None]
        return [name for name in stage.cache if any(name in other.reads for other in waiting)]

    def tidy(self, stages):
        """Removes what processes that were killed left, and finishes what they were removing."""
        folders = [self.stage(stage.name) for stage in stages]
        checkpoints = [folder / CHECKPOINTS for folder in folders]
        for folder in (self.path, self.path / PICTURES, *folders, *checkpoints):
            remove_leftovers(folder)
        for stage in stages:
            if self.done(stage.name):
                remove(self.stage(stage.name) / CHECKPOINTS)

    def clear(self, stage):
        """Removes all that a stage left.

        Raises:
            RunFailed: If something cannot be removed.
        """
        # First: a stage half removed must not count as done.
        remove_record(self.stage(stage.name) / DONE_FILE)
        for name in (*stage.writes, *stage.cache):
            remove(self.path / name)
        for pattern in stage.pictures:
            for path in self.path.glob(pattern):
                remove(path)
        if self.stage(stage.name).exists():
            clear_folder(self.stage(stage.name))

    def drop_cache(self, stages):
        """Removes what stages left for later ones alone."""
        for stage in stages:
            for name in stage.cache:
                remove(self.path / name)
