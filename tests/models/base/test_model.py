"""What a run leaves: a model of one version, arrays that are whole."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.distributed.distribution import Distribution
from keras_capsule_poe.models.base import features as stored
from keras_capsule_poe.models.base.model import save_whole
from keras_capsule_poe.training import Reporter, Run, RunFolder


class Dark(keras.Sequential):
    """Answers every image with a black one."""

    TITLE, image_shape, SHARED = "Dark", (2, 2, 1), {}
    ENDPOINTS = {"reconstruct": ("images",)}

    def reconstruct(self, images):
        return {"images": 0 * images}


def test_an_export_that_was_killed_writes_no_second_version(tmp_path):
    config = registry.settings("capsules", dataset="digits")
    run = Run(config, RunFolder(tmp_path), Reporter(write=str), load_data=None)
    run.folder.save(config, None, "a run")
    model = Dark([keras.Input((2, 2, 1)), keras.layers.Flatten()])
    assert [save_whole(run, model), save_whole(run, model)] == ["1", "1"]
    (tmp_path / "2").mkdir()  # `capspoe export` while it was stopped
    assert save_whole(run, model) == "1"
    run.folder.mark_done("export", seconds=1.0, metrics={})
    assert save_whole(run, model) == "3"


@pytest.fixture
def folder(tmp_path):
    """What stands for a run: where its files lie."""
    alone = {"is_chief": True, "distribution": Distribution()}
    settings = SimpleNamespace(checkpoint_seconds=60.0)
    return SimpleNamespace(
        path=lambda name: tmp_path / name, folder=RunFolder(tmp_path), settings=settings, **alone
    )


@pytest.mark.parametrize("n", [1, 256, 600])
def test_rows_are_those_of_the_function(folder, n):
    rows = np.random.default_rng(0).normal(size=(n, 3)).astype("float32")
    stored.save_rows(folder, "maps/train.npy", lambda x: keras.ops.cast(2 * x, "float16"), rows)
    read = stored.load_rows(folder, "maps/train.npy")
    assert read.dtype == np.float16
    # A product of two is exact, and one rounding is the same in both.
    np.testing.assert_array_equal(read, (2 * rows).astype("float16"))
