"""Runs that begin with trained parts, or that get more epochs: the engine without any training.

Rejected: a finished folder that says "done before" to other images; more epochs that start from
noise; fewer epochs that are passed over; a folder of other initial weights that is taken for this
one; a resumed extension that begins again.
"""

import json

import numpy as np
import pytest

from keras_capsule_poe.errors import AnotherRun
from keras_capsule_poe.training import Preset, Settings, TrainedPart
from keras_capsule_poe.training.folder import HISTORY_FILE


class Longer(Settings):
    MODEL = "longer"
    STAGES = {"first": ("first",), "between": (), "second": ("second",), "last": ()}
    PRESETS = {"plain": Preset("one of each")}
    first: TrainedPart = TrainedPart(epochs=1)
    second: TrainedPart = TrainedPart(epochs=1)


class Weights:
    """A part with one weight, as the engine sees it."""

    def __init__(self, value, trainable=True):
        self.weights, self.value = [self], np.array([value])
        self.trainable = trainable

    def get_weights(self):
        return [self.value]


class Model:
    """A model whose stages note what they begin with, and count their epochs."""

    SETTINGS = Longer

    def __init__(self, made, parts, epochs):
        self.made, self.parts = made, parts
        self.settings = Longer(dataset="any")
        for name, number in epochs.items():
            self.settings.set(f"{name}.epochs", number)

    def starts(self):
        return self.parts

    def has_part_of(self, run, stage):
        mine = self.parts.get(stage)
        found = (run.folder.stage(stage) / "weights.txt").read_text()
        return mine is not None and found == str(mine.value)

    def train_parts(self, run):
        for stage in run.stages:
            run.part(stage, lambda run, stage=stage: self.train(run, stage))

    def train(self, run, stage):
        if stage == self.made.stop_before:
            raise KeyboardInterrupt
        before = run._former_history(stage)
        part = run.settings.trained(stage)
        now = range(len(before), part.epochs if part else 0)
        self.made.log.append(f"{stage} {len(before)}+{len(now)}")
        if part:
            history = before + [{"epoch": epoch + 1} for epoch in now]
            (run.path(stage) / HISTORY_FILE).write_text(json.dumps(history))
        run.path(f"{stage}/weights.txt").write_text(f"[{len(before) + len(now)}]")
        if stage == "last":
            run.path("model.keras").write_text("whole")
        return {}


@pytest.fixture
def go(engine):
    def train(parts=(), load=engine.load, **epochs):
        from keras_capsule_poe.training import Reporter
        from keras_capsule_poe.training import train as start

        engine.log.clear()
        start(
            Model(engine, dict(parts), epochs),
            engine.folder,
            load,
            Reporter(write=engine.lines.append),
        )
        return list(engine.log)

    return train


def test_a_finished_run_looks_at_its_images_before_it_says_so(engine, done):
    engine.lines.clear()
    engine.refuses("The images of any are not those", AnotherRun, load=lambda: engine.load(seed=5))
    assert not any("done before" in line for line in engine.lines)
    engine.train()
    assert engine.log == []


def test_more_epochs_go_on_from_there_and_fewer_are_refused(engine, go):
    assert go() == ["first 0+1", "between 0+0", "second 0+1", "last 0+0"]
    assert go() == []
    assert go(first=2, second=3) == ["first 1+1", "between 0+0", "second 1+2", "last 0+0"]
    assert go(first=2, second=3) == []
    before = engine.files()
    with pytest.raises(AnotherRun, match=r"other settings \(steps of second: 3 -> 2\)"):
        go(first=2, second=2)
    assert engine.files() == before


def test_what_follows_a_part_with_more_epochs_is_trained_anew(go):
    go()
    assert go(first=2) == ["first 1+1", "between 0+0", "second 0+1", "last 0+0"]
    assert go(first=2, second=2) == ["second 1+1", "last 0+0"]


@pytest.mark.parametrize("stop", ["first", "second"])
def test_an_interrupted_extension_goes_on(engine, go, stop):
    go()
    engine.stop_before = stop
    with pytest.raises(KeyboardInterrupt):
        go(first=2, second=2)
    engine.stop_before = None
    left = ["first 1+1", "between 0+0", "second 1+1", "last 0+0"]
    assert go(first=2, second=2) == left[left.index(f"{stop} 1+1") :]
    assert go(first=2, second=2) == []


def test_an_interrupted_run_may_get_more_epochs(engine, go):
    engine.stop_before = "second"
    with pytest.raises(KeyboardInterrupt):
        go()
    engine.stop_before = None
    assert go(second=4) == ["second 0+4", "last 0+0"]


def test_a_folder_remembers_the_initial_weights(engine, go):
    mine, others = {"first": Weights(5)}, {"first": Weights(6)}
    go(mine)
    assert go(mine) == []
    # A model that has been trained here has its weights.
    assert go({"first": Weights(1), "second": Weights(1)}) == []
    frozen = {"first": Weights(5, trainable=False)}
    before = engine.files()
    for parts in (others, frozen, {}):
        with pytest.raises(AnotherRun, match=r"other initial weights .* \(first\)"):
            go(parts)
    assert engine.files() == before
    assert go(mine, first=2, second=2)[0] == "first 1+1"


def test_stages_to_come_may_begin_with_other_weights(engine, go):
    engine.stop_before = "second"
    with pytest.raises(KeyboardInterrupt):
        go({"second": Weights(5)})
    engine.stop_before = None
    assert go({"second": Weights(6)}) == ["second 0+1", "last 0+0"]
