"""A `CapsNet` of settings: trained like a run, trained again, then by Keras, saved, refused.

Rejected: another training than that of a run folder; weights of former layers that still count;
layers and settings together; settings that a baseline without capsules needs.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsNet, registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import BadUse, ConfigError
from keras_capsule_poe.training import Reporter, train

SETTINGS = {"filters": 2, "types": 2, "coefficients": "uniform", "decoder": "none"}
SETTINGS |= {"epochs": 1, "batch_size": 20, "compute": {"precision": "float32"}}


@pytest.mark.long
def test_it_is_trained_as_a_run_is_and_then_by_keras(tmp_path):
    images = load_images("digits", limit=60, image_size=20).train
    model = CapsNet(preset="small", **SETTINGS)
    for ask in (lambda: model.predict(images.images), lambda: model.compile("adam")):
        with pytest.raises(BadUse, match="This CapsNet is not trained yet"):
            ask()
    history = model.fit(images.images, images.labels, verbose=0)
    assert list(history) == ["capsnet"] and "val_accuracy" in history["capsnet"].history
    run = registry.create("capsnet", "small", dataset="digits", limit=60, image_size=20, **SETTINGS)
    train(run, tmp_path / "run", reporter=Reporter(write=str), stage="capsnet")
    trained = keras.models.load_model(tmp_path / "run" / "capsnet" / "model.keras", compile=False)
    for a, b in zip(model.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    # `fit` goes on from the present weights; after `reset` it starts anew.
    model.reset()
    model.fit(images.images, images.labels, verbose=0)
    for a, b in zip(model.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    model.compile("adam")
    assert "margin_loss" in model.fit(images.images, images.labels, verbose=0).history
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.settings.to_dict() == model.settings.to_dict()
    x = images.images[:5]
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))


def test_what_does_not_go_together_is_refused():
    layer = keras.layers.Flatten()
    with pytest.raises(TypeError, match="CapsNet takes layers or settings. Received: both"):
        CapsNet(layer, layer, (9, 9, 1), preset="small")
    with pytest.raises(ValueError, match="`image_shape` must be height, width and channels"):
        CapsNet(layer, layer)
    with pytest.raises(BadUse, match="train the baseline by .*Received: network='cnn'"):
        CapsNet(network="cnn").fit(np.zeros((4, 20, 20, 1)), np.arange(4))
    for wrong in ({"filters": 0}, {"decoder": "deep"}, {"preset": "none"}, {"capsules": 3}):
        with pytest.raises(ConfigError):
            CapsNet(**wrong)
