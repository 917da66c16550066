"""Images, labels and data sets that models are fitted on, and what is refused.

Rejected: bytes taken for pixels, one NaN that makes all weights NaN, and errors of NumPy and of
graphs for missing labels and wrong shapes.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import (
    CapsNet,
    CapsuleEncoder,
    CapsulePoE,
    ConvAutoencoder,
    EMCapsules,
    HarmoniumModel,
    ImageBoltzmannMachine,
    NeuronExperts,
    NeuronPoE,
    PrimaryCapsules,
    PrimaryMatrixCapsules,
    ProductOfExpertNeurons,
    RestrictedBoltzmannMachine,
    RoutingLayer,
    SpreadLoss,
)
from keras_capsule_poe.errors import BadUse


def broken(images):
    images = images.copy()
    images[3, 2, 2] = np.nan
    return images


BAD = {
    "bytes": (lambda x: 255 * x, r"in \[0, 1\]. Received: values from .* to 25[0-9].*255"),
    "negative": (lambda x: x - 1, "Received: values from -"),
    "NaN": (broken, "Received: NaN or infinity"),
    "binary bytes": (lambda x: (x > 0.5).astype("uint8"), "uint8 must hold bytes.*float32"),
    "rank": (lambda x: x[..., 0], r"`x` must be images \(batch, 12, 12, 1\).*shape \(16, 12, 12\)"),
    "flat": (lambda x: x.reshape(16, -1), r"`x` must be images.*Received: shape \(16, 144\)"),
    "size": (lambda x: x[:, :8], r"`x` must be images.*Received: shape \(16, 8, 12, 1\)"),
}  # fmt: skip


def test_bad_images_are_refused_before_a_step(make, images, labels):
    model = make()
    model.compile("adam")
    ask = {
        "fit": lambda x: model.fit(x, labels, verbose=0),
        "validate": lambda x: model.fit(images, labels, validation_data=(x, labels), verbose=0),
        "evaluate": lambda x: model.evaluate(x, labels, verbose=0),
        "train_on_batch": lambda x: model.train_on_batch(x, labels),
        "predict": lambda x: model.predict(x, verbose=0),
        "classify": model.classify,
    }
    for change, wanted in BAD.values():
        for name, call in ask.items():
            words = wanted.replace("`x`", "`images`") if name == "classify" else wanted
            with pytest.raises(ValueError, match=words) as found:
                call(change(images))
            assert "\n" not in str(found.value), name
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def dataset(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0]).batch(4)


def generator(*arrays):
    return (tuple(a[k : k + 4] for a in arrays) for k in range(0, 16, 4))


class Batches(keras.utils.PyDataset):
    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return 4

    def __getitem__(self, k):
        return tuple(a[4 * k : 4 * k + 4] for a in self.arrays)


SOURCES = {"dataset": dataset, "generator": generator, "PyDataset": Batches}


@pytest.mark.some(3)
@pytest.mark.parametrize("source", SOURCES)
def test_bad_images_of_data_sets_are_refused(make, images, labels, source):
    for change, wanted in (BAD[kind] for kind in ("bytes", "negative", "NaN")):
        model = make()
        model.compile("adam")
        with pytest.raises(ValueError, match=wanted) as found:
            model.fit(SOURCES[source](change(images), labels), verbose=0, shuffle=False)
        assert "\n" not in str(found.value)


@pytest.mark.some(3)
@pytest.mark.parametrize("source", SOURCES)
def test_data_sets_train_as_arrays_do(make, images, labels, source):
    found = []
    for data in ((images, labels), (SOURCES[source](images, labels),)):
        keras.utils.set_random_seed(0)
        model = make()
        model.compile("adam")
        options = {"verbose": 0, "shuffle": False, "steps_per_epoch": 4}
        if len(data) == 2:
            options["batch_size"] = 4
        found.append(model.fit(*data, **options).history)
    assert found[0] == {name: pytest.approx(value, rel=1e-6) for name, value in found[1].items()}


def test_data_sets_of_unknown_rank(make, images, labels):
    """Rejects a check that needs a rank."""
    y = np.eye(4, dtype="float32")[labels]

    def batches():
        yield images, y

    kinds = (tf.TensorSpec(None, "float32"), tf.TensorSpec(None, "float32"))
    data = tf.data.Dataset.from_generator(batches, output_signature=kinds)
    data = data.map(lambda x, y: (tf.ensure_shape(x, (None, 12, 12, 1)), y))
    model = make()
    model.compile("adam")
    options = {"steps_per_epoch": 1, "shuffle": False, "verbose": 0}
    assert np.isfinite(model.fit(data.repeat(), **options).history["loss"])


@pytest.mark.some(2)
@pytest.mark.parametrize("as_dataset", [False, True])
def test_bytes_of_dtype_uint8_are_pixels(make, images, labels, as_dataset):
    grey, found = (255 * images).astype("uint8"), []
    for x in (grey, grey.astype("float32") / 255):
        keras.utils.set_random_seed(0)
        model = make()
        model.compile("adam")
        data = (dataset(x, labels),) if as_dataset else (x, labels)
        found.append(model.fit(*data, verbose=0, shuffle=False).history)
        found[-1]["p"] = np.asarray(model.classify(x)["probabilities"]).tolist()
        np.testing.assert_allclose(model.predict(x, verbose=0), found[-1]["p"], rtol=1e-5)
    # Graphs may multiply by 1/255.
    np.testing.assert_allclose(found[0].pop("p"), found[1].pop("p"), rtol=1e-4)
    assert found[0] == {name: pytest.approx(value, rel=1e-4) for name, value in found[1].items()}


def test_images_without_labels_are_refused(make, images):
    model = make()
    model.compile("adam")
    for data in (lambda x: x, *SOURCES.values()):
        with pytest.raises(ValueError, match="`y` must be the labels.*Received: y=None"):
            model.fit(data(images), verbose=0, shuffle=False)


def test_labels_of_no_class_are_refused(make, images, labels):
    model = make()
    model.compile("adam")
    with pytest.raises(ValueError, match="integers from 0 to 3.*Received: values from 1 to 4"):
        model.fit(images, labels + 1, verbose=0)
    with pytest.raises(ValueError, match=r"zeros and ones \(batch, 4\). Received: shape"):
        model.fit(images, np.eye(5)[labels], verbose=0)


def test_image_shapes_have_three_sizes():
    with pytest.raises(ValueError, match="`image_shape` must be height, width and channels"):
        CapsNet(keras.layers.Dense(3), RoutingLayer(2, 3), (64,))


# Models that are trained without labels

VISIBLE = np.random.default_rng(0).integers(2, size=(16, 6)).astype("float32")
CAPSULES = np.random.default_rng(0).uniform(0, 0.3, size=(16, 6, 4)).astype("float32")
PIXELS = np.random.default_rng(0).uniform(size=(16, 20, 20, 1)).astype("float32")
UNSUPERVISED = {
    "rbm": (lambda: HarmoniumModel(RestrictedBoltzmannMachine(3)), VISIBLE),
    "encoder": (lambda: CapsuleEncoder(CapsulePoE(3, 2, implementation="reference")), CAPSULES),
    "neurons": (lambda: NeuronExperts(NeuronPoE(3, 2, implementation="reference")), CAPSULES),
    "autoencoder": (lambda: ConvAutoencoder(filters=2), PIXELS),
}


def compiled(name):
    make, x = UNSUPERVISED[name]
    model, loss = make(), ["binary_crossentropy"] if name == "autoencoder" else []
    model.compile(keras.optimizers.SGD(0.01), *loss, jit_compile=False)
    return model, x


@pytest.mark.some(2)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", UNSUPERVISED)
def test_data_sets_build_the_model(name, source, tmp_path):
    model, x = compiled(name)
    model.fit(SOURCES[source](x), steps_per_epoch=4, verbose=0, shuffle=False)
    assert model.built
    # A model that was only trained was called, too.
    model.export(tmp_path / "exported", verbose=False)
    model.summary(print_fn=lambda *_, **__: None)
    model.save(tmp_path / "model.keras")
    keras.models.load_model(tmp_path / "model.keras").export(tmp_path / "again", verbose=False)


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_bad_values_are_refused(name):
    bounded = r"`x` must have finite values in \[0, 1\].* to 25[0-9]"
    for source in (lambda x: x, dataset):
        model, x = compiled(name)
        if name in ("rbm", "autoencoder"):
            with pytest.raises(ValueError, match=bounded):
                model.fit(source(255 * x), verbose=0, shuffle=False)
        x = x.copy()
        x.flat[5] = np.nan
        with pytest.raises(ValueError, match="Received: NaN or infinity. Replace"):
            model.fit(source(x), verbose=0, shuffle=False)
        assert not model.built or all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.parametrize("change", [lambda v: 255 * v, lambda v: np.where(v > 0, np.nan, v)])
def test_an_rbm_adapts_to_values_in_range(change):
    machine = RestrictedBoltzmannMachine(3)
    with pytest.raises(ValueError, match=r"`data` must have finite values in \[0, 1\]"):
        machine.adapt(change(VISIBLE))
    gaussian = RestrictedBoltzmannMachine(3, visible="gaussian")
    gaussian.adapt(255 * VISIBLE)
    with pytest.raises(ValueError, match="Received: NaN"):
        gaussian.adapt(np.where(VISIBLE > 0, np.nan, VISIBLE))


def test_an_autoencoder_takes_bytes():
    grey, found = (255 * PIXELS).astype("uint8"), []
    for x in (grey, grey.astype("float32") / 255):
        model, _ = compiled("autoencoder")
        found.append(model.fit(x, verbose=0, shuffle=False).history)
    assert found[0] == found[1]


def test_tests_report_only_what_they_measure():
    """Rejects zeros for metrics of training."""
    model, x = compiled("neurons")
    model.fit(x, validation_data=(x,), verbose=0)
    logs = model.evaluate(x, verbose=0, return_dict=True)
    assert set(logs) == {"loss", "free_energy", "rarest_usage"} and logs["rarest_usage"] > 0
    tempered = HarmoniumModel(RestrictedBoltzmannMachine(3), algorithm="pt")
    tempered.compile(keras.optimizers.SGD(0.01), jit_compile=False)
    history = tempered.fit(VISIBLE, validation_data=(VISIBLE,), verbose=0).history
    assert {"exchange_rate", "update_size"} < set(history)
    assert not {"val_exchange_rate", "val_update_size"} & set(history)


def test_other_models_export_once_they_are_built(tmp_path):
    rbm = ImageBoltzmannMachine(RestrictedBoltzmannMachine(3), (6, 6, 1))
    rbm.build((None, 6, 6, 1))
    rbm.export(tmp_path / "rbm", verbose=False)


def test_expert_neurons_in_half_precision():
    """Rejects primary capsules of float32 weights and half-precision features."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        autoencoder, primary = ConvAutoencoder(filters=4), PrimaryCapsules(4)
        autoencoder.build((None, 20, 20, 1))
        primary.adapt([np.asarray(autoencoder.encode(PIXELS)).astype("float32")])
        experts = NeuronExperts(NeuronPoE(3, 2, implementation="reference"))
        model = ProductOfExpertNeurons(autoencoder, primary, experts)
        model.build((None, 20, 20, 1))
        assert model.code(PIXELS)["probabilities"].shape == (16, 3)
        assert model.reconstruct(PIXELS)["images"].shape == PIXELS.shape
    finally:
        keras.config.set_dtype_policy(before)


# Layers and losses


def test_refusals_name_the_remedy():
    with pytest.raises(ValueError, match="`shared_weights=True` allows any number"):
        RoutingLayer(2, 3)(keras.Input((None, 4)))
    pose, activation = EMCapsules(3)(PrimaryMatrixCapsules(2)(np.ones((2, 4, 4, 5), "float32")))
    with pytest.raises(ValueError, match=r"`y_pred` must have shape.*Flatten.*\(2, 1, 1, 3\)"):
        SpreadLoss()(np.eye(3)[:2], activation)


@pytest.mark.parametrize(
    "change",
    [lambda x: None, lambda x: 5, lambda x: {}, lambda x: x * 1j, lambda x: x.astype(str),
     lambda x: np.array([None]), lambda x: np.ma.masked_array(x, x > 0.2), lambda x: x[0, 0, 0]],
)  # fmt: skip
def test_classifiers_have_the_gate_of_other_models(make, images, change):
    model = make()
    for call in (model.classify, getattr(model, "encode", model.classify)):
        with pytest.raises(BadUse, match="^`images` must .*Received: ") as error:
            call(change(images))
        assert "\n" not in str(error.value)
    assert {len(values) for values in model.classify(images[:0]).values()} == {0}
