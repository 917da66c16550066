"""Checkpoints: bit for bit, by time, and what becomes of damaged ones."""

import json
import resource

import keras
import numpy as np
import pytest

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training import Reporter
from keras_capsule_poe.training.checkpoints import Checkpoints
from keras_capsule_poe.training.fitting import Diverged, fit

STEPS, EPOCHS = 5, 3


def made_model(units=3, rate=0.1):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def stream(epoch, step):
    import tensorflow as tf

    random = np.random.default_rng(1)
    x = random.normal(size=(EPOCHS, STEPS, 2, 4)).astype("float32")
    left = x.reshape(-1, 2, 4)[epoch * STEPS + step :]
    return tf.data.Dataset.from_tensor_slices((left, left[..., :3]))


class Stop(Exception):
    pass


class StopAt(Reporter):
    """Dies after a number of steps."""

    def __init__(self, at=None):
        self.lines = []
        super().__init__(write=self.lines.append)
        self.at, self.seen = at, 0

    def step(self, stage, epoch, step, logs):
        super().step(stage, epoch, step, logs)
        self.seen += 1
        if self.seen == self.at:
            raise Stop


def run(folder, at=None, seconds=60.0, model=None, reporter=None):
    model = model or made_model()
    reporter = reporter or StopAt(at)
    with reporter.stage("toy"):
        history = fit(
            model,
            stream,
            stage="toy",
            folder=folder,
            length=(EPOCHS, STEPS),
            reporter=reporter,
            checkpoint_seconds=seconds,
            after_epoch=lambda: {"first": float(model.get_weights()[0][0, 0])},
            callbacks=reporter.callbacks("toy"),
        )
    return history, model.get_weights()


def without_seconds(history):
    return [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in history]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """History and weights of a run that nothing stops."""
    return run(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("at", [pytest.param(3, marks=pytest.mark.long), 5, 13])
def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not(tmp_path, at, undisturbed):
    whole, weights = undisturbed
    with pytest.raises(Stop):
        run(tmp_path / "parts", at, seconds=1e-9)
    parts, resumed = run(tmp_path / "parts")
    assert without_seconds(parts) == without_seconds(whole)
    for a, b in zip(weights, resumed):
        np.testing.assert_array_equal(a, b)
    assert json.loads((tmp_path / "parts" / "history.json").read_text()) == parts


def test_what_is_measured_after_an_epoch_reaches_the_callbacks(tmp_path):
    """TensorBoard's writes what it finds in the logs of an epoch."""
    seen = []

    class Watching(StopAt):
        def callbacks(self, stage):
            end = lambda epoch, logs: seen.append(dict(logs))  # noqa: E731
            return [keras.callbacks.LambdaCallback(on_epoch_end=end)]

    history, _ = run(tmp_path, reporter=Watching())
    assert [logs["first"] for logs in seen] == [epoch["first"] for epoch in history]
    assert len(seen) == EPOCHS and {"loss", "mae"} <= set(seen[0])


def test_tensorboard_has_what_is_measured_after_each_epoch(tmp_path):
    """Of epochs of 5 steps, every tenth of which is written."""
    pytest.importorskip("tensorboard")
    import tensorflow as tf

    (tmp_path / "logs").mkdir()
    history, _ = run(tmp_path, reporter=Reporter(write=str, log_dir=tmp_path / "logs"))
    (path,) = (tmp_path / "logs").rglob("*.v2")
    found = {}
    for record in tf.data.TFRecordDataset(str(path)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            found.setdefault(value.tag, []).append(tf.make_ndarray(value.tensor))
    # They are written as float32.
    np.testing.assert_allclose(found["epoch_first"], [e["first"] for e in history], rtol=1e-6)
    assert len(found["epoch_loss"]) == EPOCHS and len(found["batch_loss"]) == 1


def test_checkpoints_come_by_time_and_at_the_end(tmp_path):
    with pytest.raises(Stop):
        run(tmp_path / "rare", at=12)
    assert not list((tmp_path / "rare").glob("checkpoints/*"))
    run(tmp_path / "rare")
    assert [path.name for path in (tmp_path / "rare" / "checkpoints").iterdir()] == [
        f"step-{EPOCHS * STEPS:09d}"
    ]
    with pytest.raises(Stop):
        run(tmp_path / "often", at=12, seconds=1e-9)
    kept = sorted(path.name for path in (tmp_path / "often" / "checkpoints").iterdir())
    assert kept == ["step-000000010", "step-000000011"]


def test_a_finished_stage_that_was_killed_before_it_was_marked_trains_no_more(tmp_path):
    history, weights = run(tmp_path)
    (tmp_path / "history.json").unlink()
    again, restored = run(tmp_path, at=1)  # would raise at the first step
    assert again == history
    np.testing.assert_array_equal(weights[0], restored[0])


def damage(path, how):
    if how == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "other":
        path.write_text("[]")
    elif how == "flipped":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    else:
        path.unlink()


@pytest.mark.parametrize(
    "name, how",
    [
        pytest.param("weights.npz", "cut", marks=pytest.mark.long),
        ("weights.npz", "flipped"),
        pytest.param("weights.npz", "gone", marks=pytest.mark.long),
        pytest.param("state.json", "empty", marks=pytest.mark.long),
        ("state.json", "other"),
        pytest.param("state.json", "flipped", marks=pytest.mark.long),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_older_one_is_used(tmp_path, name, how, undisturbed):
    whole, weights = undisturbed
    folder = tmp_path / "parts"
    with pytest.raises(Stop):
        run(folder, at=8, seconds=1e-9)
    damage(folder / "checkpoints" / "step-000000007" / name, how)
    reporter = StopAt()
    history, resumed = run(folder, reporter=reporter)
    assert any("step-000000007 cannot be used" in line for line in reporter.lines)
    assert "toy: resumed after step 6 of 15" in reporter.lines
    assert without_seconds(history) == without_seconds(whole)
    np.testing.assert_array_equal(weights[0], resumed[0])


def test_without_a_whole_checkpoint_training_does_not_start_over_in_silence(tmp_path):
    with pytest.raises(Stop):
        run(tmp_path, at=8, seconds=1e-9)
    for path in (tmp_path / "checkpoints").iterdir():
        damage(path / "weights.npz", "cut")
    with pytest.raises(RunFailed, match="step-000000007 cannot.*no other can") as failed:
        run(tmp_path)
    assert failed.value.hint == "stage_fresh:toy"
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    with pytest.raises(Stop):
        run(tmp_path, at=3, seconds=1e-9)
    other = made_model(units=2)
    with pytest.raises(RunFailed, match="another model"):
        Checkpoints(other, tmp_path / "checkpoints").restore(print)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    checkpoints = Checkpoints(made_model(), tmp_path, run="one")
    checkpoints.save(3, {"history": []})
    assert Checkpoints(made_model(), tmp_path, run="one").restore(print)["step"] == 3
    with pytest.raises(RunFailed, match="another run"):
        Checkpoints(made_model(), tmp_path, run="two").restore(print)
    # One that came from elsewhere does not hide one's own.
    Checkpoints(made_model(), tmp_path, run="two").save(9, {"history": []})
    assert checkpoints.restore(print)["step"] == 3


@pytest.fixture
def full_disk():
    """Files of more than 64 kB cannot be written, as where the disk is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_on_a_full_disk_the_checkpoint_before_stays_and_nothing_else(tmp_path, full_disk):
    small, large = made_model(), made_model(units=2**14)
    Checkpoints(small, tmp_path).save(3, {"history": []})
    with pytest.raises(RunFailed, match="Cannot write .*step-000000004: File too large"):
        Checkpoints(large, tmp_path).save(4, {"history": []})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000003"]
    assert Checkpoints(small, tmp_path).restore(print)["step"] == 3


def test_weights_that_are_no_numbers_are_not_kept(tmp_path):
    model = made_model(rate=1e30)
    with pytest.raises(Diverged, match=r"toy diverged.*epoch 1, step \d of 5.*learning rate"):
        run(tmp_path, seconds=1e-9, model=model)
    for path in tmp_path.glob("checkpoints/*/weights.npz"):
        with np.load(path) as arrays:
            assert all(np.isfinite(arrays[name]).all() for name in arrays.files)
