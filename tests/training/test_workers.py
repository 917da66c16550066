"""Workers that cannot follow the chief, and what they are told; without any other process."""

import json

import pytest

from keras_capsule_poe.distributed.distribution import Distribution
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training import Reporter, RunFolder
from keras_capsule_poe.training.images import watched
from keras_capsule_poe.training.run import Run, _follow


class Second(Distribution):
    """The second worker of a chief that has these settings."""

    def __init__(self, settings):
        super().__init__(worker=1, workers=2)
        self.settings = settings

    def from_chief(self, value):
        return json.loads(json.dumps([self.settings, value[1]]))


@pytest.fixture
def second(engine):
    """Function of the chief's and the worker's settings: the worker's run."""
    engine.train()

    def made(folder=engine.folder, load=engine.load, **settings):
        chief, own = (engine.settings(dataset="any") for _ in range(2))
        own.update(settings)
        worker = Second(chief.to_dict())
        folder = RunFolder(folder)
        return Run(own, folder, Reporter(write=str), lambda: watched(load(), own), worker)

    return made


def test_a_worker_like_the_chief_follows(second):
    # Checkpoints are the chief's alone, and so is how often.
    _follow(second(checkpoint_seconds=5.0))


def test_a_worker_that_would_train_something_else_does_not(second, tmp_path, engine):
    with pytest.raises(RunFailed, match="Worker 1 has other settings than the chief: first.size"):
        _follow(second(first={"size": 7}))
    with pytest.raises(RunFailed, match="The images of worker 1 are not those of the chief"):
        _follow(second(load=lambda: engine.load(seed=1)))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RunFailed, match="Worker 1 does not see the chief's files"):
        _follow(second(folder=empty))
