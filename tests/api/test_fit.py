"""Image models that are made of settings and trained by `fit`.

Rejected: weights of `fit` that differ from those of the command line; a callback that only the
first stage hears; results of images out of range.
"""

import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_capsule_poe as kcp
from keras_capsule_poe.data import ImageSet, load_images
from keras_capsule_poe.errors import BadUse, ConfigError, DataError, RunFailed, TrainingWarning

# They are trained for a few steps only.
pytestmark = pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")

SMALL = {
    "capsules": 3,
    "compute": {"precision": "float32"},
    "autoencoder": {"filters": 4, "epochs": 2, "batch_size": 32},
    "encoder": {"dim": 4, "epochs": 2, "batch_size": 32},
    "decoder": {"epochs": 2, "batch_size": 32},
}
CAPSULES = ["autoencoder", "encoder", "decoder"]


@pytest.fixture(scope="module")
def x():
    return load_images("digits", limit=96).train.images


@pytest.fixture(scope="module")
def fitted(x):
    model = kcp.ProductOfExpertCapsules(**SMALL)
    with pytest.warns(TrainingWarning, match="encoder: it learned nothing.*Train longer, or with"):
        history = model.fit(x, verbose=0)
    return model, history


def test_a_history_of_each_stage(fitted):
    model, history = fitted
    assert list(history) == list(model.history) == CAPSULES and model.histories is model.history
    for found in history.values():
        assert isinstance(found, keras.callbacks.History) and found.epoch == [0, 1]
        assert np.isfinite(found.history["val_relative_error"]).all()


def test_it_is_the_model_of_the_command_line(fitted, capspoe, tmp_path):
    given = {"encoder.capsules": 3, "compute.precision": "float32"}
    given |= {f"{part}.{key}": v for part in CAPSULES for key, v in SMALL[part].items()}
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    options = ("--dataset", "digits", "--limit", 96, "--model-dir", tmp_path / "model")
    result = capspoe("train", *options, *words)
    assert result.exit_code == 0, result.output
    there = kcp.load(tmp_path / "model")
    assert len(fitted[0].weights) == len(there.weights) > 20
    # Images alone are held out as there, too.
    for ours, theirs in zip(fitted[0].weights, there.weights):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)


def test_results_have_names(fitted, x):
    model, _ = fitted
    codes = model.encode(x)
    assert codes.capsules.shape == (96, 3, 4) and codes.free_energy.shape == (96,)
    np.testing.assert_array_equal(codes.winners, codes.probabilities.argmax(axis=1))
    np.testing.assert_array_equal(codes["capsules"], codes.capsules)
    in_unit = model.encode(x.astype("float64") / 255)
    np.testing.assert_allclose(in_unit.capsules, codes.capsules, atol=1e-6)
    np.testing.assert_array_equal(model.encode(x[..., 0]).capsules, codes.capsules)
    decoded = model.decode(codes).images
    np.testing.assert_allclose(model.reconstruct(x).images, decoded, atol=1e-6)
    np.testing.assert_allclose(model.predict(x, verbose=0), decoded, atol=1e-5)


def test_samples_of_one_capsule_and_of_all(fitted):
    model, _ = fitted
    all_of_them, one = model.sample(6, seed=1), model.sample(6, seed=1, capsule=2)
    assert sorted(all_of_them.index) == [0, 0, 1, 1, 2, 2] and one.index.tolist() == [2] * 6
    on = np.abs(one.capsules).sum(axis=-1) > 0
    np.testing.assert_array_equal(on, np.tile([False, False, True], (6, 1)))
    np.testing.assert_array_equal(model.sample(6, seed=1).images, all_of_them.images)
    assert np.abs(model.sample(6).images - model.sample(6).images).max() > 0
    assert model.sample(2, mode="joint").index is None


def test_a_fitted_model_is_saved_loaded_and_exported(fitted, x, tmp_path):
    model, _ = fitted
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    in_unit = tf.constant(x[:5] / np.float32(255))
    np.testing.assert_allclose(exported.serve(in_unit), model.reconstruct(x[:5]).images, atol=1e-5)
    model.save(tmp_path / "m.keras")
    loaded = kcp.load(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.encode(x).capsules, model.encode(x).capsules)


def test_an_unfitted_model_says_so():
    model = kcp.ProductOfExpertCapsules(**SMALL)
    with pytest.raises(BadUse, match=r"not trained yet. Call `fit\(images\)` first"):
        model.sample(3)
    with pytest.raises(BadUse, match="not trained yet"):
        model.predict(np.zeros((2, 28, 28, 1)))


class Heard(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.models, self.epochs = [], 0

    def on_train_begin(self, logs=None):
        self.models.append(self.model.name)

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1
        assert "val_relative_error" in logs
        self.model.stop_training = True


def test_callbacks_hear_each_stage_and_may_end_it(x):
    heard = Heard()
    model = kcp.ProductOfExpertNeurons(
        autoencoder={"filters": 4},
        compute={"precision": "float32"},
        experts={"capsules": 3, "dim": 4, "joint_steps": 3},
    )
    history = model.fit(x, epochs=3, batch_size=48, verbose=0, callbacks=[heard])
    assert heard.models == ["autoencoder", "experts"] and heard.epochs == 2
    assert [found.epoch for found in history.values()] == [[0], [0]]
    assert model.sample(4, capsule=1).images.shape == (4, 28, 28, 1)


def test_validation_images_are_not_trained_on(x):
    seen = []

    def run(**options):
        model = kcp.ImageBoltzmannMachine(hidden=5)
        model.fit(epochs=1, verbose=0, **options)
        seen.append(model.get_weights())

    run(x=x[:60], validation_data=x[60:])
    run(x=x, validation_split=36 / 96)
    for one, other in zip(*seen):
        np.testing.assert_array_equal(one, other)


@pytest.mark.some(4)
@pytest.mark.parametrize("kind", ["pairs", "batched", "floats", "dataset"])
def test_images_of_any_form(x, kind):
    images = {
        "dataset": tf.data.Dataset.from_tensor_slices(x),
        "batched": tf.data.Dataset.from_tensor_slices(x).batch(17),
        "pairs": tf.data.Dataset.from_tensor_slices((x, np.arange(96))).batch(5),
        "floats": (x / 255).astype("float32"),
    }[kind]
    found = kcp.ImageBoltzmannMachine(hidden=5)
    expected = kcp.ImageBoltzmannMachine(hidden=5)
    found.fit(images, epochs=1, verbose=0)
    expected.fit(x, epochs=1, verbose=0)
    for one, other in zip(found.get_weights(), expected.get_weights()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"dim": 4}, "`dim` is a setting of several parts. Give one of primary={'dim': ...}, enc"),
        ({"capsule": 4}, "There is no setting `capsule`. Did you mean `capsules`"),
        ({"recipe": "best"}, "`preset` must be one of generation, .*Received: preset='best'"),
        ({"encoder": {"dims": 3}}, "no setting `encoder.dims`. Did you mean `dim`"),
        (
            {"capsules": "many"},
            "encoder.capsules must be a whole number of at least 1. Received: 'many'",
        ),
    ],
)
def test_bad_settings_are_refused_when_the_model_is_made(settings, words):
    with pytest.raises(ConfigError, match=words):
        kcp.ProductOfExpertCapsules(**settings)


def test_a_part_needs_those_before_it(fitted):
    parts = {name: getattr(fitted[0], name) for name in fitted[0].NEEDED}
    assert kcp.ProductOfExpertCapsules(**parts, seed=1).settings.encoder.capsules == 3
    del parts["primary"]
    with pytest.raises(TypeError, match="all parts before it, .*Received: encoder without primary"):
        kcp.ProductOfExpertCapsules(**parts)


@pytest.mark.long
def test_a_folder_keeps_everything_and_resumes(x, tmp_path):
    model = kcp.ImageBoltzmannMachine(hidden=5)
    model.fit(x, epochs=1, verbose=0, folder=tmp_path / "m")
    for name in ("model.keras", "1/saved_model.pb", "rbm/history.json"):
        assert (tmp_path / "m" / name).is_file()
    again = kcp.ImageBoltzmannMachine(hidden=5)
    before = (tmp_path / "m" / "rbm" / "model.keras").stat().st_mtime_ns
    again.fit(x, epochs=1, verbose=0, folder=tmp_path / "m")
    assert (tmp_path / "m" / "rbm" / "model.keras").stat().st_mtime_ns == before
    for one, other in zip(model.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_train_keeps_the_history_that_fit_returns(x):
    model = kcp.ImageBoltzmannMachine(hidden=5)
    assert model.history == {}
    fitted = model.fit(x, epochs=2, verbose=0)
    trained = kcp.train(x, model="rbm", hidden=5, epochs=2, verbose=0).history
    assert list(fitted) == list(trained) == ["rbm"]
    one, other = ({**each["rbm"].history, "seconds": None} for each in (fitted, trained))
    assert one == other and trained["rbm"].epoch == [0, 1] and model.history["rbm"].epoch == [0, 1]


@pytest.mark.long
def test_train_on_data_of_any_source(tmp_path, x):
    options = {"model": "rbm", "hidden": 5, "epochs": 1, "verbose": 0}
    named = kcp.train("digits", limit=96, **options)
    assert isinstance(named, kcp.ImageBoltzmannMachine)
    for source in (x, (x, np.arange(96)), ImageSet(x).images):
        found = kcp.train(source, **options)
        for one, other in zip(found.get_weights(), named.get_weights()):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(DataError, match="no such folder or file"):
        kcp.train(tmp_path / "nothing", **options)


@pytest.mark.parametrize("given", ["folder", "file"])
def test_what_cannot_be_loaded_is_refused_in_a_line(tmp_path, given):
    path = tmp_path if given == "folder" else tmp_path / "m.keras"
    with pytest.raises(BadUse, match="a model folder, a .keras file or a URL"):
        kcp.load(path)
    (tmp_path / ("model.keras" if given == "folder" else "m.keras")).write_text("no archive")
    with pytest.raises(RunFailed, match="Cannot load"):
        kcp.load(path)


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_progress_is_one_line_or_none(x, capsys, verbose):
    kcp.ImageBoltzmannMachine(hidden=5).fit(x, epochs=2, verbose=verbose)
    shown = capsys.readouterr().out
    if verbose == 0:
        assert shown == ""
    elif verbose == 1:
        # A line for each stage, and one for the whole.
        assert shown.count("\n") == 2 and "Trained in" in shown
        assert "[1/2] rbm" in shown and "loss" in shown
        assert any("held-out error" in line for line in shown.split("\n"))
    else:
        assert "rbm: epoch 2: " in shown


@pytest.mark.long
def test_tensorflow_reports_no_errors_of_its_own():
    code = (
        "import keras_capsule_poe as kcp, numpy as np\n"
        "m = kcp.ImageBoltzmannMachine(hidden=3)\n"
        "m.fit(np.random.default_rng(0).integers(256, size=(40, 8, 8)).astype('uint8'), "
        "epochs=1, verbose=0)"
    )
    known = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stdout
    # While it is imported it writes a few lines whatever the level is.
    assert not re.findall(r"^[EW]0.*", done.stderr, re.M), done.stderr


def test_a_part_that_learned_nothing_warns_when_it_is_trained_alone():
    x = np.random.default_rng(0).normal(size=(64, 6, 4)).astype("float32")
    encoder = kcp.CapsuleEncoder(kcp.CapsulePoE(3, 2))
    encoder.compile(keras.optimizers.SGD(1e-6), jit_compile=False)
    with pytest.warns(TrainingWarning, match="CapsuleEncoder learned nothing.*start_from_images"):
        encoder.fit(x, epochs=10, verbose=0)


def test_the_line_of_progress_does_not_hide_what_is_said_of_the_images(tmp_path, capsys):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(10):
            pixels = np.random.default_rng(i).integers(0, 256, (12, 12), dtype="uint8")
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    (tmp_path / "notes.txt").touch()
    kcp.train(tmp_path, model="rbm", hidden=4, epochs=1, verbose=1)
    shown = capsys.readouterr().out
    # Classes of one size are not counted.
    assert "images of 2 classes: cat " not in shown and "Left out: 1 file" in shown
    assert shown.index("Left out") < shown.index("Trained in")


@pytest.mark.parametrize(
    "model, name",
    [("rbm", "hidden"), pytest.param("matrix-capsules", "types", marks=pytest.mark.long)],
)
def test_a_model_that_exceeds_the_memory_is_one_line(model, name):
    x = np.random.default_rng(0).integers(0, 255, (20, 8, 8), dtype=np.uint8)
    with pytest.raises(RunFailed, match="^There is not enough memory [^\n]*$"):
        kcp.train((x, np.arange(20) % 2), model=model, preset="small", verbose=0, **{name: 10**11})
