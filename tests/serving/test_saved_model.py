"""The SavedModel, in a process that has TensorFlow but not this package."""

import json
import subprocess
import sys
import textwrap
import threading

import keras
import numpy as np
import pytest
from keras import ops

from keras_capsule_poe.serving import export_saved_model, versions

PROGRAM = textwrap.dedent(
    """
    import sys
    sys.path = [p for p in sys.path if p != sys.argv[3]]
    # An import would fail; the others TensorFlow would import and not use.
    sys.modules.update(dict.fromkeys(("keras_capsule_poe", "jax", "matplotlib", "sklearn")))
    import numpy as np
    import tensorflow as tf
    model = tf.saved_model.load(sys.argv[1])
    arrays = np.load(sys.argv[2])
    results = {}
    for n in (1, 7):
        images, capsules = (tf.constant(arrays[name][:n]) for name in ("images", "capsules"))
        calls = {
            "encode": model.encode(images),
            "decode": model.decode(capsules),
            "reconstruct": model.reconstruct(images),
            "free_energy": model.free_energy(images),
            "sample": model.sample(n, 5),
            "sample_capsule": model.sample_capsule(1, n, 5),
        }
        for name, values in calls.items():
            for key, value in values.items():
                results[f"{name}.{key}.{n}"] = value.numpy()
        signature = model.signatures["encode"](images)
        for key, value in signature.items():
            np.testing.assert_array_equal(value, calls["encode"][key])
    assert type(model).__module__.startswith("tensorflow."), type(model)
    np.savez(sys.argv[4], **results)
    """
)


@pytest.mark.long
def test_endpoints_equal_the_library_without_it(tiny_model, tmp_path):
    import keras

    import keras_capsule_poe

    product = keras.models.load_model(tiny_model / "model.keras", compile=False)
    assert isinstance(product, keras_capsule_poe.ProductOfExpertCapsules)
    random = np.random.default_rng(0)
    images = random.uniform(size=(7, 28, 28, 1)).astype("float32")
    capsules = (random.normal(size=(7, 3, 4)) / 4).astype("float32")
    inputs, outputs = tmp_path / "inputs.npz", tmp_path / "outputs.npz"
    np.savez(inputs, images=images, capsules=capsules)
    root = keras_capsule_poe.__path__[0].rsplit("/", 1)[0]
    # -I: neither the current folder nor PYTHONPATH is looked at.
    command = [sys.executable, "-I", "-c", PROGRAM, tiny_model / "1", inputs, root, outputs]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(outputs) as arrays:
        loaded = dict(arrays)
    for n in (1, 7):
        expected = {
            "encode": product.encode(ops.array(images[:n])),
            "decode": product.decode(ops.array(capsules[:n])),
            "reconstruct": product.reconstruct(ops.array(images[:n])),
            "free_energy": product.free_energy(ops.array(images[:n])),
            "sample": product.sample(ops.array(n), 5),
            "sample_capsule": product.sample_capsule(1, n, 5),
        }
        for name, values in expected.items():
            for key, value in values.items():
                # float32 in another order of operations.
                np.testing.assert_allclose(
                    loaded.pop(f"{name}.{key}.{n}"), value, rtol=1e-5, atol=1e-5, err_msg=name
                )
    assert not loaded, "endpoints give more than the contract says"


@pytest.mark.long
def test_gradients_go_through_it(tiny_model):
    import keras
    import tensorflow as tf

    product = keras.models.load_model(tiny_model / "model.keras", compile=False)
    served = tf.saved_model.load(str(tiny_model / "1"))
    images = tf.constant(np.random.default_rng(0).uniform(size=(5, 28, 28, 1)), "float32")

    def slope(encode):
        with tf.GradientTape() as tape:
            tape.watch(images)
            first = encode(images)["probabilities"][:, 0]
        return np.asarray(tape.gradient(first, images))

    expected = slope(product.encode)
    assert np.abs(expected).max() > 0
    # Float32 sums of a thousand terms, in another order.
    atol = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(slope(served.encode), expected, rtol=0, atol=atol)


def test_card_tells_what_the_model_is(tiny_model):
    card = json.loads((tiny_model / "1" / "model_card.json").read_text())
    assert card["data"] == "digits" and card["seed"] == 0
    assert card["capsules"] == [3, 4]
    assert card["config"]["encoder"]["capsules"] == 3
    assert np.isfinite(card["metrics"]["decoder"]["loss"])
    assert card["packages"]["tensorflow"]


class Small(keras.Model):
    """Model with one endpoint, which is quick to export."""

    TITLE, ENDPOINTS, SHARED, image_shape = "Small", {"half": ("images",)}, {}, (4, 4, 1)
    view = None

    def half(self, images):
        return {"half": images / 2}


def test_exports_at_the_same_time_are_two_versions(tmp_path):
    models = [Small(), Small()]
    for model in models:
        model.build((None, 4, 4, 1))
    paths, errors = [], []

    def export(model):
        try:
            paths.append(export_saved_model(model, tmp_path, {}))
        except Exception as error:
            errors.append(error)

    # Two threads share a model.
    threads = [threading.Thread(target=export, args=(model,)) for model in (*models, models[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (
        sorted(path.name for path in paths) == ["1", "2", "3"] == list(map(str, versions(tmp_path)))
    )
