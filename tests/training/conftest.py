"""A model whose stages write a line each: the engine without any training."""

import types

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training import Part, Preset, Reporter, Settings, train
from keras_capsule_poe.training.settings import Count


class Sized(Part):
    size: Count = 1


class FakeSettings(Settings):
    MODEL = "fake"
    STAGES = {"first": ("first",), "second": ("second",), "last": ()}
    PRESETS = {"plain": Preset("one of each"), "large": Preset("more", {"first": {"size": 9}})}
    first: Sized = Sized()
    second: Sized = Sized()


def fake_model(made, settings=FakeSettings):
    """A class of models whose stages note that they ran in `made.log`."""

    class Fake:
        SETTINGS = settings

        def __init__(self, settings):
            self.settings = settings

        of = classmethod(lambda cls, settings: cls(settings))

        def train_parts(self, run):
            files = {
                "first": ("first/a.txt", run.cache("first/rows.txt")),
                "second": ("second/b.txt",),
                "last": ("model.keras", "samples.png"),
            }
            for stage in run.stages:
                run.part(stage, lambda run, stage=stage: self.write(run, stage, *files[stage]))

        def write(self, run, stage, *names):
            """Leave a line of the stage's settings and of the run's seed in each file."""
            if made.stop_before == stage:
                raise KeyboardInterrupt
            made.log.append(stage)
            for name in names:
                size = getattr(run.settings, stage).size if stage != "last" else ""
                run.path(name).write_text(f"{stage} {size} {run.settings.seed}\n")
            if stage == "first":
                run.cache("first/rows.txt")
            return {"size": 1.0}

    return Fake


def images(seed=0, n=20):
    """`ImageData` of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 8, 8, 1)).astype("uint8")
    return ImageData(ImageSet(pixels[2:]), ImageSet(pixels[:2]))


@pytest.fixture
def engine(tmp_path):
    """Trains the fake model in a folder, noting which stages ran and what was said."""
    made = types.SimpleNamespace(folder=tmp_path / "model", log=[], lines=[], stop_before=None)
    made.settings = FakeSettings

    def go(load=images, stage=None, fresh=False, folder=None, settings=FakeSettings, **values):
        made.log.clear()
        model = fake_model(made, settings).of(settings(dataset="any", **values))
        reporter = Reporter(write=made.lines.append)
        return train(model, folder or made.folder, load, reporter, stage=stage, fresh=fresh)

    def refuses(words, error=RunFailed, **arguments):
        """The call fails with these words, and every file stays as it was."""
        before = made.files()
        with pytest.raises(error, match=words):
            go(**arguments)
        assert made.files() == before
        assert made.log == []

    made.train, made.refuses, made.load = go, refuses, images
    made.files = lambda: {
        str(path.relative_to(made.folder)): path.read_bytes()
        for path in sorted(made.folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
    return made


@pytest.fixture
def done(engine):
    """A finished run: its files."""
    engine.train()
    return engine.files()
