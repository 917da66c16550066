"""Callbacks of Keras over all parts of a training: each works, or is refused in a line.

Rejected: a log of the last part only; a checkpoint of a part; a metric without `val_`; a callback
that is refused after minutes of training.
"""

import csv
import importlib.util
import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import BadUse, TrainingWarning
from keras_capsule_poe.former_names import Metrics

pytestmark = pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")
# Epochs of each part until a callback stops the encoder.
EPOCHS = {"autoencoder": 3, "encoder": 2, "decoder": 3}
SMALL = {
    "capsules": 3,
    "compute": {"precision": "float32"},
    "autoencoder": {"filters": 4, "batch_size": 32},
    "encoder": {"dim": 4, "batch_size": 32},
    "decoder": {"batch_size": 32},
}


@pytest.fixture(scope="module")
def x():
    return load_images("digits", limit=64).train.images


@pytest.fixture(scope="module")
def heard(x, tmp_path_factory):
    """A model, its histories, and what callbacks of its training wrote and heard."""
    folder, seen = tmp_path_factory.mktemp("heard"), []
    model = kcp.ProductOfExpertCapsules(**SMALL)

    def note(epoch, logs):
        # A former name is found, but is no key of its own.
        seen.append((epoch, dict(logs), logs["held_out_relative_error"]))

    callbacks = [
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True),
        keras.callbacks.LambdaCallback(on_epoch_end=note),
        keras.callbacks.TerminateOnNaN(),
        # A metric of the encoder alone, which cannot improve so much.
        keras.callbacks.EarlyStopping("val_free_energy", 1e6, patience=0, mode="min"),
    ]
    history = model.fit(x, epochs=EPOCHS["decoder"], verbose=0, callbacks=callbacks)
    return model, history, folder, seen


def test_metrics_on_held_out_images_are_named_as_in_keras(heard):
    _, history, _, seen = heard
    assert [epoch for epoch, _, _ in seen] == [0, 1, 2, 0, 1, 0, 1, 2]
    for _, logs, former in seen:
        assert {"loss", "val_loss", "val_relative_error"} <= set(logs)
        assert logs["val_relative_error"] == former and np.isfinite(logs["val_loss"])
        assert not [name for name in logs if name.startswith("held_out")]
    assert {stage: len(found.epoch) for stage, found in history.items()} == EPOCHS
    for stage in EPOCHS:
        found = history[stage].history
        assert found["val_relative_error"] == found["held_out_relative_error"]
        assert "val_loss" in found and "held_out_relative_error" not in [*found]


def test_a_log_has_the_epochs_of_all_parts(heard):
    _, history, folder, _ = heard
    with open(folder / "log.csv") as file:
        rows = list(csv.DictReader(file))
    expected = [(part, epoch) for part, epochs in EPOCHS.items() for epoch in range(epochs)]
    assert [(row["part"], int(row["epoch"])) for row in rows] == expected
    for row, (part, epoch) in zip(rows, expected):
        assert float(row["val_loss"]) == history[part].history["val_loss"][epoch]
        assert (row["val_free_energy"] == "NA") == (part != "encoder")


def test_a_checkpoint_is_the_whole_model(heard, x):
    model, history, folder, _ = heard
    kept = kcp.load(folder / "best.keras")
    assert type(kept) is type(model) and kept.sample(2, seed=0).images.shape == (2, 28, 28, 1)
    losses = history["decoder"].history["val_loss"]
    if losses[-1] == min(losses):
        # Shared capsules are fitted after the last epoch.
        maps = [each.decoder.primaries.get_weights() for each in (kept, model)]
        for own, last in zip(*maps, strict=True):
            np.testing.assert_array_equal(own, last)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rbm", "capsnet"])
def test_checkpoints_and_logs_of_other_models(x, tmp_path, kind):
    y = np.arange(len(x)) % 2
    model, data = {
        "rbm": (kcp.ImageBoltzmannMachine(hidden=4), (x,)),
        "capsnet": (
            kcp.CapsNet(preset="small", filters=4, types=1, primary_dim=4, dim=4, decoder="none"),
            (x, y),
        ),
    }[kind]
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "e{epoch}.keras"),
        keras.callbacks.ModelCheckpoint(tmp_path / "w.weights.h5", save_weights_only=True),
        keras.callbacks.CSVLogger(tmp_path / "log.csv", append=True),
    ]
    for _ in range(2):
        history = model.fit(*data, epochs=1, verbose=0, callbacks=callbacks)
    kept = kcp.load(tmp_path / "e1.keras")
    for one, other in zip(kept.get_weights(), model.get_weights()):
        np.testing.assert_allclose(one, other, atol=1e-6)
    kept.load_weights(tmp_path / "w.weights.h5")
    stage = next(iter(history))
    assert np.isfinite(history[stage].history["val_loss"]).all()
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert len(lines) == 3 and lines[0].startswith("part,epoch,") and "val_loss" in lines[0]


def test_a_metric_that_no_part_has_is_named(x):
    stop = keras.callbacks.EarlyStopping("val_los")
    # This one stops after the second epoch.
    early = keras.callbacks.EarlyStopping(patience=0, min_delta=1e6)
    with pytest.warns(TrainingWarning, match="no part has the metric `val_los`. There are .*val_l"):
        history = kcp.ImageBoltzmannMachine(hidden=3).fit(
            x, epochs=4, verbose=0, callbacks=[stop, early]
        )
    assert history["rbm"].epoch == [0, 1]


def refused_callbacks(tmp_path):
    return {
        "ReduceLROnPlateau": keras.callbacks.ReduceLROnPlateau(),
        "LearningRateScheduler": keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        "BackupAndRestore": keras.callbacks.BackupAndRestore(f"{tmp_path}/backup"),
        "SwapEMAWeights": keras.callbacks.SwapEMAWeights(),
        "Keras callbacks": 3,
    }


@pytest.mark.parametrize("name", [*refused_callbacks("")])
def test_what_cannot_follow_parts_is_refused_before_training(x, tmp_path, name):
    callback = refused_callbacks(tmp_path)[name]
    for given in (callback, [callback]):
        with pytest.raises(BadUse, match=f"`callbacks` must .*{name}.*Received: ") as error:
            kcp.ImageBoltzmannMachine(hidden=3).fit(
                x, verbose=0, callbacks=given, folder=tmp_path / "m"
            )
        assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_whole_after_training_alone_has_no_checkpoints(x, tmp_path):
    callback = keras.callbacks.ModelCheckpoint(tmp_path / "m.keras")
    with pytest.raises(BadUse, match="must not hold ModelCheckpoint: this model is whole only"):
        kcp.ProductOfExpertNeurons().fit(x, verbose=0, callbacks=[callback])


def test_tensorboard_has_a_folder_of_each_part_or_is_refused(x, tmp_path):
    board = keras.callbacks.TensorBoard(tmp_path)
    model = kcp.ImageBoltzmannMachine(hidden=3)
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(BadUse, match="TensorBoard, which is not installed. Install it: pip"):
            model.fit(x, verbose=0, callbacks=[board])
        return
    model.fit(x, epochs=1, verbose=0, callbacks=[board])
    assert list((tmp_path / "rbm").rglob("events*"))


def test_former_names_of_metrics():
    found = Metrics({"held_out_accuracy": 1, "loss": 2})
    assert list(found) == ["val_accuracy", "loss"] and len(found) == 2
    assert (
        found["held_out_accuracy"] == found.get("held_out_accuracy") == found["val_accuracy"] == 1
    )
    assert "held_out_accuracy" in found and "held_out_loss" not in found
    assert found.get("val_loss") is None
    with pytest.raises(KeyError, match="held_out_loss"):
        found["held_out_loss"]


@pytest.mark.long
def test_each_line_of_the_page_works_or_is_refused(x, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "how-to" / "callbacks.md"
    lines = re.findall(r"\| `(keras\.callbacks\..*?)` \|", page.read_text())
    named = {line.split("(")[0].rpartition(".")[2] for line in lines}
    assert named >= {
        "CSVLogger",
        "ModelCheckpoint",
        "EarlyStopping",
        "TensorBoard",
        "TerminateOnNaN",
    }
    is_there = importlib.util.find_spec("tensorboard") is not None
    callbacks = [eval(line, {"keras": keras}) for line in lines if is_there or "Tensor" not in line]
    kcp.ImageBoltzmannMachine(hidden=3).fit(x, epochs=1, verbose=0, callbacks=callbacks)
    assert {path.name for path in tmp_path.iterdir()} >= {"log.csv", "best.keras"}
    refused = set(re.findall(r"`(\w+)`", page.read_text().partition("| instead |")[2]))
    assert refused >= {"ReduceLROnPlateau", "LearningRateScheduler", "BackupAndRestore"}
