"""A family whose stages write a line each: the engine without any training."""

import dataclasses
import types

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training import Family, Recipe, Reporter, RunConfig, Stage, train


@dataclasses.dataclass
class Section:
    size: int = 1


def writes(run, stage, *names):
    """Leaves a line of the stage's settings and of the run's seed in each file."""
    if run.stop_before == stage:
        raise KeyboardInterrupt
    run.log.append(stage)
    for name in names:
        size = run.config[stage].size if stage in run.config.sections else ""
        run.path(name).write_text(f"{stage} {size} {run.config.seed}\n")
    return {"size": 1.0}


def checked(config, image_shape):
    if config["second"].size < 1:
        raise ValueError("`size` must be at least 1.")


def fake_family(name="fake"):
    def stage(name, *files, **more):
        return Stage(name, lambda run: writes(run, name, *files), **more)

    first = ("first/a.txt", "first/rows.txt")
    return Family(
        name=name,
        text="lines of text",
        sections={"first": Section, "second": Section},
        stages=(
            stage("first", *first, section="first", writes=first[:1], cache=first[1:]),
            stage(
                "second",
                "second/b.txt",
                section="second",
                writes=("second/b.txt",),
                reads=first[1:],
            ),
            stage("last", "model.keras", writes=("model.keras",), pictures=("samples.png",)),
        ),
        recipes={"plain": Recipe("one of each"), "large": Recipe("more", {"first": {"size": 9}})},
        load=lambda path: path.read_text(),
        check=checked,
    )


def images(seed=0, n=20):
    """`ImageData` of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 8, 8, 1)).astype("uint8")
    return ImageData(ImageSet(pixels[2:]), ImageSet(pixels[:2]))


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Trains the fake family in a folder, noting which stages ran and what was said."""
    from keras_capsule_poe.training import run as run_module

    made = types.SimpleNamespace(folder=tmp_path / "model", log=[], lines=[], family=fake_family())
    made.stop_before = None

    class Run(run_module.Run):
        log = made.log

        @property
        def stop_before(self):
            return made.stop_before

    monkeypatch.setattr(run_module, "Run", Run)

    def go(load=images, stage=None, fresh=False, folder=None, family=None, **settings):
        made.log.clear()
        config = RunConfig(family or made.family)
        config.update({"dataset": "any", **settings})
        reporter = Reporter(write=made.lines.append)
        return train(config, folder or made.folder, load, reporter, stage=stage, fresh=fresh)

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
    (engine.folder / "samples.png").write_text("a picture")
    return engine.files()
