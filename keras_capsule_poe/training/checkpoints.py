"""Checkpoints of a model in training: atomic writes, and digests that are checked on reading."""

import shutil
from pathlib import Path

import numpy as np
from keras import ops

from keras_capsule_poe.errors import RunFailed, in_short
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.records import digest, read_record, write_record

STATE_FILE, WEIGHTS_FILE = "state.json", "weights.npz"
KEPT = 2


class Checkpoints:
    """All variables of a model, its optimizer and its metrics, in folders `step-NUMBER`."""

    def __init__(self, model, folder, hint=None, run=None):
        self.folder, self.hint, self.run = Path(folder), hint, run
        found = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        self.variables = list({id(variable): variable for variable in found}.values())
        metrics = {id(variable) for variable in model.metrics_variables}
        self._metrics = [i for i, v in enumerate(self.variables) if id(v) in metrics]

    def restore(self, note):
        """Restore the newest intact checkpoint of this run and model; return its state, or None."""
        problems = []
        for path in reversed(self._paths()):
            try:
                state, values = self._read(path)
            except (RunFailed, OSError, ValueError, KeyError, TypeError) as error:
                problems.append(f"The checkpoint {path} cannot be used ({in_short(error)})")
                note(f"{problems[-1]}: going on from an older one, if there is one")
                continue
            for variable, value in zip(self.variables, values):
                variable.assign(value)
            return state
        if problems:
            raise RunFailed(f"{problems[0]}, and no other can.", hint=self.hint)
        return None

    def save(self, step, state):
        """Write a checkpoint with `state`, a dict of plain values; keep the newest two."""
        values = [ops.convert_to_numpy(variable) for variable in self.variables]
        for variable, value in zip(self.variables, values):
            # NumPy has no bfloat16: such arrays have kind "V" and are not checked.
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise FloatingPointError(variable.path)
        with atomic_write(self.folder / f"step-{step:09d}") as temporary:
            temporary.mkdir()
            with open(temporary / WEIGHTS_FILE, "wb") as file:
                np.savez(file, **{str(i): value for i, value in enumerate(values)})
            names = [variable.path for variable in self.variables]
            digests = {WEIGHTS_FILE: digest(temporary / WEIGHTS_FILE)}
            saved = {**state, "step": step, "run": self.run, "variables": names, "files": digests}
            write_record(temporary / STATE_FILE, saved, copy=False)
        for old in self._paths()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def metric_values(self):
        """Return copies of the metrics' variables."""
        return [np.array(ops.convert_to_numpy(self.variables[i])) for i in self._metrics]

    def assign_metrics(self, values):
        """Assign the result of `metric_values` to the metrics' variables."""
        for i, value in zip(self._metrics, values):
            self.variables[i].assign(value)

    def _paths(self):
        return sorted(self.folder.glob("step-*"))

    def _read(self, path):
        state = read_record(path / STATE_FILE)
        if digest(path / WEIGHTS_FILE) != state["files"][WEIGHTS_FILE]:
            raise ValueError("its variables are not what was written")
        if state.get("run") != self.run:
            raise ValueError("it is of another run")
        with np.load(path / WEIGHTS_FILE) as arrays:
            values = [arrays[str(i)] for i in range(len(state["variables"]))]
        if [tuple(variable.shape) for variable in self.variables] != [a.shape for a in values]:
            raise ValueError("it is of another model")
        return state, values
