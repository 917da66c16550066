"""A run folder that is moved, deleted or replaced during training is never written to."""

import json
import shutil

import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training import Reporter, train


class Meddler(Reporter):
    """Reporter that calls a function at the start of a stage's third step."""

    def __init__(self, meddle):
        super().__init__(verbose=0)
        self.meddle = meddle

    def step(self, stage, epoch, step, logs):
        super().step(stage, epoch, step, logs)
        if stage == "rbm" and step == 3 and self.meddle:
            meddle, self.meddle = self.meddle, None
            meddle()


def config(seed=0):
    made = registry.settings("rbm", dataset="digits", limit=60, seed=seed, checkpoint_seconds=0.001)
    for name, value in {"rbm.hidden": 5, "rbm.epochs": 3, "rbm.batch_size": 10}.items():
        made.set(name, value)
    return made


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.long
def test_a_folder_that_is_renamed_stays_as_it_is_and_goes_on_at_its_new_place(tmp_path):
    folder, elsewhere = tmp_path / "m", tmp_path / "renamed"
    with pytest.raises(RunFailed, match="no longer holds this run: it was moved") as failed:
        train(
            registry.untrained(config()), folder, reporter=Meddler(lambda: folder.rename(elsewhere))
        )
    assert failed.value.hint == "model_dir" and not folder.exists()
    assert list((elsewhere / "rbm" / "checkpoints").glob("step-*"))
    train(registry.untrained(config()), elsewhere, reporter=Meddler(None))
    assert (elsewhere / "model.keras").exists()


def test_a_folder_that_is_deleted_is_not_made_again(tmp_path):
    folder = tmp_path / "m"
    with pytest.raises(RunFailed, match="no longer holds this run"):
        train(registry.untrained(config()), folder, reporter=Meddler(lambda: shutil.rmtree(folder)))
    assert not folder.exists()


def test_another_run_in_its_place_keeps_its_files(tmp_path):
    other, folder = tmp_path / "other", tmp_path / "m"
    train(registry.untrained(config(seed=1)), other, reporter=Meddler(None), stage="rbm")
    before = files(other)

    def replace():
        shutil.rmtree(folder)
        other.rename(folder)

    with pytest.raises(RunFailed, match="no longer holds this run"):
        train(registry.untrained(config()), folder, reporter=Meddler(replace))
    assert files(folder) == before


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["run.json", "rbm/done.json"])
def test_a_record_that_another_file_took_the_place_of_is_read_from_its_copy(tmp_path, name):
    folder = tmp_path / "m"
    train(registry.untrained(config()), folder, reporter=Meddler(None), stage="rbm")
    (folder / name).write_text(json.dumps({"accuracy": 0.5}))
    again = train(registry.untrained(config()), folder, reporter=Meddler(None), stage="rbm")
    assert again.metrics().keys() == {"rbm"}


def test_an_export_that_fails_keeps_the_model_that_is_there(tmp_path):
    folder = tmp_path / "m"
    train(registry.untrained(config()), folder, reporter=Meddler(None))
    before = (folder / "model.keras").read_bytes()
    (folder / "rbm" / "model.keras").write_bytes(b"damaged")
    with pytest.raises(RunFailed):
        train(
            registry.untrained(config()), folder, reporter=Meddler(None), stage="export", fresh=True
        )
    assert (folder / "model.keras").read_bytes() == before


@pytest.mark.long
def test_an_export_is_done_again_if_it_is_asked_for(tmp_path):
    folder = tmp_path / "m"
    train(registry.untrained(config()), folder, reporter=Meddler(None))
    train(registry.untrained(config()), folder, reporter=Meddler(None), stage="export", fresh=True)
    assert (folder / "2" / "saved_model.pb").exists()
