"""`fit` as in Keras: it goes on from the present weights, and copies keep the settings.

Rejected: a second `fit` from noise; a copy with default settings; random weights that count as
trained ones; given or frozen parts that are trained; an interrupt that loses finished parts;
options of data that nobody reads; values out of range that are encoded.
"""

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_capsule_poe as kcp
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import AnotherRun, BadUse, ConfigError, DataError

pytestmark = pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")

TINY = {
    "seed": 3,
    "compute": {"precision": "float32", "implementation": "reference"},
    "autoencoder": {"filters": 4, "epochs": 1},
    "encoder": {"capsules": 3, "dim": 4, "epochs": 1, "routing_iterations": 2},
    "decoder": {"epochs": 1},
}
SILENT = {"verbose": 0}


class Heard(keras.callbacks.Callback):
    """Notes which parts are trained, and interrupts before one of them."""

    def __init__(self, stop=None):
        super().__init__()
        self.stop, self.parts = stop, []

    def on_train_begin(self, logs=None):
        if self.model.name == self.stop:
            raise KeyboardInterrupt
        self.parts.append(self.model.name)


def largest_change(one, other):
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", limit=60).train


@pytest.fixture(scope="module")
def x(digits):
    return digits.images


class Mine(kcp.ImageBoltzmannMachine):
    """A subclass with a constructor and attributes of its own."""

    def __init__(self, label, **settings):
        super().__init__(**settings)
        self.label = label


@pytest.fixture
def rbm(x):
    model = Mine("a label", hidden=5, seed=1, name="mine")
    model.note = {"of": "the user"}
    model.fit(x, epochs=1, **SILENT)
    return model


def test_it_goes_on_from_the_present_weights(rbm, x):
    first = copy.deepcopy(rbm.get_weights())
    rbm.fit(x, epochs=1, **SILENT)
    kernels = rbm.machine.get_weights()[0], rbm.machine.get_weights()[0]
    once = np.abs(kernels[0] - first[1]).max()
    assert 0 < once < 0.1
    # What the user and a subclass have set stays.
    assert (rbm.label, rbm.note, rbm.name) == ("a label", {"of": "the user"}, "mine")
    with pytest.raises(DataError, match=r"this model's, \(28, 28, 1\). Received: \(20, 28, 1\)"):
        rbm.fit(x[:, :20], **SILENT)
    rbm.reset()
    assert not rbm.is_fitted and not rbm.weights and rbm.settings.rbm.hidden == 5
    with pytest.raises(BadUse, match="not trained yet"):
        rbm(x[:2] / 255)
    rbm.fit(x, epochs=1, **SILENT)
    for one, other in zip(rbm.get_weights(), first, strict=True):
        np.testing.assert_array_equal(one, other)
    rbm.reset()
    rbm.fit(x[:, :20], epochs=1, **SILENT)
    assert rbm.sample(2).images.shape == (2, 20, 28, 1)


def test_finished_parts_stay_after_an_interrupt(x):
    settings = {"preset": "features", "autoencoder": TINY["autoencoder"], "hidden": 5}
    settings |= {"compute": TINY["compute"], "rbm": {"epochs": 1}}
    model, stopped, heard = kcp.ImageBoltzmannMachine(**settings), Heard("rbm"), Heard()
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, callbacks=[stopped], **SILENT)
    assert stopped.parts == ["autoencoder"] and not model.is_fitted
    assert model.autoencoder is not None and model.machine is None
    model.fit(x, callbacks=heard, **SILENT)
    assert heard.parts == ["rbm"] and model.is_fitted
    whole = kcp.ImageBoltzmannMachine(**settings)
    whole.fit(x, **SILENT)
    assert largest_change(model, whole) == 0
    # Of other images, the finished parts are the start.
    model.reset()
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, callbacks=[Heard("rbm")], **SILENT)
    again = Heard("rbm")
    with pytest.raises(KeyboardInterrupt):
        model.fit(255 - x, callbacks=[again], **SILENT)
    assert again.parts == ["autoencoder"]


@pytest.mark.long
def test_given_and_frozen_parts_are_kept(x, tmp_path):
    options = {"compute": TINY["compute"], "rbm": {"epochs": 1, "hidden": 5}}
    trained = kcp.ImageBoltzmannMachine(
        preset="features", autoencoder=TINY["autoencoder"], **options
    )
    trained.fit(x, **SILENT)
    heard, model = Heard(), kcp.ImageBoltzmannMachine(autoencoder=trained.autoencoder, **options)
    assert model.settings.autoencoder.filters == 4 and model.settings.rbm.visible == "features"
    for images in (255 - x, x):
        model.fit(images, callbacks=[heard], **SILENT)
    assert heard.parts == ["rbm", "rbm"] and trained.autoencoder.trainable
    assert largest_change(model.autoencoder, trained.autoencoder) == 0
    model.save(tmp_path / "m.keras")
    loaded = kcp.load(tmp_path / "m.keras")
    assert not loaded.autoencoder.trainable and loaded.machine.trainable
    loaded.trainable = False
    with pytest.raises(BadUse, match="Nothing is left to train"):
        loaded.fit(x, **SILENT)
    with pytest.raises(BadUse, match="`autoencoder` must be a trained part"):
        kcp.ImageBoltzmannMachine(autoencoder=kcp.ConvAutoencoder(4))


def copies(model):
    again = pickle.loads(pickle.dumps(model))
    weights = keras.models.clone_model(model)
    weights.set_weights(model.get_weights())
    return {
        "copy": copy.copy(model),
        "deepcopy": copy.deepcopy(model),
        "pickle": again,
        "clone with weights": weights,
    }


def test_copies_train_as_the_model_itself(rbm, x, tmp_path):
    plain = kcp.ImageBoltzmannMachine(hidden=5, seed=1)
    plain.fit(x, epochs=1, **SILENT)
    plain.save(tmp_path / "m.keras")
    plain.settings.given.clear()
    for name, made in {**copies(plain), "load": kcp.load(tmp_path / "m.keras")}.items():
        assert made.is_fitted and largest_change(made, plain) == 0, name
        assert made.settings.to_dict() == plain.settings.to_dict(), name
        assert not made.settings.given, name
    clone = keras.models.clone_model(plain)
    assert not clone.is_fitted
    for use in (lambda: clone(x[:2] / 255), lambda: clone.encode(x[:2]), lambda: clone.sample(2)):
        with pytest.raises(BadUse, match="not trained yet"):
            use()
    clone.machine.trainable = False
    with pytest.raises(BadUse, match="weights of rbm are random"):
        clone.fit(x, **SILENT)
    clone.machine.trainable = True
    clone.fit(x, epochs=1, **SILENT)
    assert largest_change(clone, plain) == 0


@pytest.mark.parametrize(
    "make",
    [
        kcp.ProductOfExpertCapsules,
        kcp.ProductOfExpertNeurons,
        kcp.ImageBoltzmannMachine,
        kcp.CapsNet,
        kcp.MatrixCapsNet,
    ],
)
@pytest.mark.filterwarnings("ignore:You are saving a model that has not yet been built")
def test_copies_before_training_keep_settings(make, tmp_path):
    preset = list(make.SETTINGS.PRESETS)[1]
    model = make(preset=preset, seed=7, name="mine")
    model.save(tmp_path / "m.keras")
    made = [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    made += [make.from_config(model.get_config()), keras.models.clone_model(model)]
    for each in (*made, kcp.load(tmp_path / "m.keras")):
        assert not each.is_fitted and each.name == "mine"
        assert each.settings.preset == preset and each.settings.seed == 7
        assert each.settings.given == {"seed"}
        assert each.settings.to_dict() == model.settings.to_dict()


@pytest.mark.long
def test_a_classifier_keeps_its_classes(digits, tmp_path):
    x, y = digits.images[:, 4:24, 4:24], digits.labels
    net = kcp.CapsNet(preset="small", classes=12, seed=1, compute={"precision": "float32"})
    net.fit(x, y, epochs=1, **SILENT)
    assert net.capsules == 12
    net.save(tmp_path / "m.keras")
    loaded, some = kcp.load(tmp_path / "m.keras"), np.isin(y, (3, 8))
    assert loaded.settings.preset == "small" and loaded.settings.seed == 1
    loaded.fit(x[some], y[some], epochs=1, **SILENT)
    assert loaded.capsules == 12 and loaded.class_names == net.class_names
    assert 0 < largest_change(loaded, net) < 0.1
    found = loaded.classify(x[some] / np.float32(255))["classes"]
    assert np.isin(found, (3, 8)).mean() > 0.5
    with pytest.raises(
        DataError, match="of the classes of this model, 0, 1, .* Received: cat, dog"
    ):
        loaded.fit(x, np.where(y > 4, "cat", "dog"), **SILENT)
    clone = keras.models.clone_model(loaded)
    assert not clone.is_fitted
    with pytest.raises(BadUse, match="not trained yet"):
        clone.predict(x[:2])
    loaded.reset()
    loaded.fit(x, np.where(y > 4, "cat", "dog"), epochs=1, **SILENT)
    assert loaded.capsules == 2 and loaded.class_names == ("cat", "dog")


@pytest.mark.long
def test_more_epochs_in_a_folder_go_on(rbm, x, tmp_path):
    model, options = kcp.ImageBoltzmannMachine(hidden=5), {"folder": tmp_path / "m", **SILENT}
    model.fit(x, epochs=1, **options)
    for images in (255 - x, x[:50]):
        with pytest.raises(AnotherRun, match="images of x are not those"):
            model.fit(images, epochs=1, **options)
    with pytest.raises(AnotherRun, match="images of x are not those"):
        kcp.train(255 - x, model="rbm", hidden=5, epochs=1, **options)
    with pytest.raises(AnotherRun, match="was trained with other settings|initial weights"):
        rbm.fit(x, epochs=1, **options)
    before = model.machine.get_weights()
    assert model.fit(x, epochs=3, **options)["rbm"].epoch == [0, 1, 2]
    assert np.abs(model.machine.get_weights()[0] - before[0]).max() < 0.1
    again = kcp.ImageBoltzmannMachine(hidden=5)
    assert again.fit(x, epochs=3, **options)["rbm"].epoch == [0, 1, 2]
    assert largest_change(again, model) == 0 and kcp.load(tmp_path / "m").settings.rbm.epochs == 3


OF_DATA = {
    "column": "x", "train_dir": "x", "test_dir": "x", "background": "black", "max_value": 9,
    "skip_broken": True, "split": "azimuth", "store": "x", "data_dir": "x", "manual_dir": "x",
}  # fmt: skip


@pytest.mark.parametrize("name", [*OF_DATA, "limit"])
def test_options_of_data_are_refused_for_arrays(x, name):
    if name != "limit":
        with pytest.raises(BadUse, match=f"`{name}` (has no effect on|is for named)"):
            kcp.train(x, model="rbm", **{name: OF_DATA[name]}, **SILENT)
    if name not in ("store", "data_dir", "manual_dir"):
        model = kcp.ImageBoltzmannMachine(**{name: OF_DATA.get(name, 5)})
        with pytest.raises(ConfigError, match=f"`{name}` has no effect on images in memory"):
            model.fit(x, **SILENT)


def test_options_of_data_that_arrays_have(x, digits):
    colour = np.repeat(x, 3, axis=-1)
    options = {"model": "rbm", "hidden": 5, "epochs": 1, **SILENT}
    found = kcp.train(colour, limit=40, held_out=5, image_size=14, grey=True, **options)
    assert found.image_shape == (14, 14, 1)
    data = kcp.data.arrays.image_data(x, limit=40, held_out=5)
    assert len(data.train) == 35 and len(data.held_out) == 5
    wanted = kcp.ImageBoltzmannMachine(hidden=5, image_size=14)
    wanted.fit(data, epochs=1, **SILENT)
    assert largest_change(found, wanted) == 0
    # The options were of this data set.
    found.fit(data.train.images, epochs=1, **SILENT)


BAD = {
    "None": (None, "x=None"),
    "a word": ("digits", "x='digits'. `keras_capsule_poe.train` takes names"),
    "a number": (5, "x=5"),
    "a dict": ({}, "x={}"),
    "several sizes": ([np.zeros((8, 8)), np.zeros((9, 9))], "images of several sizes"),
    "one image": (np.zeros((1, 28, 28), "uint8"), "at least two images.*Received: 1"),
    "none": (np.zeros((0, 28, 28), "uint8"), "at least two images.*Received: 0"),
    "bool": (np.eye(28)[None] > 0, r"dtype bool.*astype\('float32'\)"),
    "zeros and ones": (np.eye(28, dtype=int)[None], r"dtype int.*astype\('float32'\)"),
    "bytes": (np.full((9, 28, 28), 200), r"from 200 to 200.*astype\('uint8'\)"),
    "12 bits": (np.full((9, 28, 28), 4000), "from 4000 to 4000. Divide them"),
    "floats of bytes": (np.full((9, 28, 28, 1), 255.0), "Received: values from 255 to 255"),
    "NaN": (np.full((9, 28, 28, 1), np.nan), "Received: 7056 NaN values"),
    "negative": (np.full((9, 28, 28, 1), -0.5), "Received: values from -0.5 to -0.5"),
    "ones": (np.ones((9, 28, 28, 1), "uint8"), "of dtype uint8 must be in .*values up to 1"),
    "four channels": (np.zeros((9, 28, 28, 4), "uint8"), "must have 1 or 2 or 3 channels"),
    "rows": (np.zeros((9, 28), "uint8"), r"must have shape \(N, H, W, C\) or \(N, H, W\)"),
    "equal": (np.zeros((9, 28, 28, 1), "uint8"), "8 equal images"),
    "masked": (np.ma.masked_equal(np.eye(28)[None], 1), "must have no masked values"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_not_images_is_refused_in_a_line(kind):
    images, words = BAD[kind]
    with pytest.raises(DataError, match=words) as refused:
        kcp.ImageBoltzmannMachine().fit(images, **SILENT)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("options", [{"callbacks": 3}, {"callbacks": [Heard]}, {"folder": 5}])
def test_arguments_of_other_types_are_refused_in_a_line(x, options):
    ((name, value),) = options.items()
    with pytest.raises(BadUse, match=f"`{name}` must .*Received: "):
        kcp.ImageBoltzmannMachine().fit(x, **options, **SILENT)
    with pytest.raises(BadUse, match="`path` must be .*Received: path=5"):
        kcp.load(5)
    with pytest.raises(ConfigError, match="`dtype` must be float32.*Received: dtype='mixed_bf"):
        kcp.ProductOfExpertCapsules(dtype="mixed_bfloat16")


def test_tensors_and_datasets_are_checked_as_arrays_are(x):
    model, few = kcp.load("mnist"), x[:4]
    bytes_, codes = tf.constant(few), model.encode(few)
    dataset = tf.data.Dataset.from_tensor_slices((few, np.arange(4))).batch(3)
    np.testing.assert_array_equal(model.encode(dataset).capsules, codes.capsules)
    np.testing.assert_allclose(model.encode(bytes_)["capsules"], codes.capsules, atol=1e-6)
    np.testing.assert_allclose(model(bytes_), model.reconstruct(few).images, atol=1e-5)
    for use in (model, model.encode, model.free_energy, model.reconstruct):
        with pytest.raises(ValueError, match="values from 0 to 255. Divide bytes by 255"):
            use(tf.cast(bytes_, "float32"))
    net = kcp.CapsNet.from_recipe("small", (28, 28, 1), 3)
    with pytest.raises(ValueError, match="values from 0 to 255. Divide bytes by 255"):
        net(tf.cast(bytes_, "float32"))
    np.testing.assert_array_equal(net.encode(dataset)["capsules"], net.encode(few)["capsules"])


@pytest.mark.long
def test_it_says_that_training_can_be_interrupted_only_if_it_can(x, capsys, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.training.progress.LONG", -1.0)
    monkeypatch.setattr("keras_capsule_poe.training.progress.SETTLED", 0.0)
    options = {"epochs": 1, "verbose": 1}
    kcp.train(x, model="rbm", hidden=3, **options)
    assert "in all." in (shown := capsys.readouterr().out) and "interrupt" not in shown
    kcp.ImageBoltzmannMachine(hidden=3).fit(x, **options)
    assert "You can interrupt: the next `fit` on these images" in capsys.readouterr().out
