"""Classifiers with an average of their weights: it is judged and saved, and training goes on.

To be rejected: an average that is saved and not judged, or judged and not saved, and one that
training goes on from.
"""

import json

import keras
import numpy as np
import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.training import Reporter, train


def trained(folder, momentum):
    """The model that is saved, the metrics of its epochs, and its share of held-out images."""
    settings = {"dataset": "digits", "limit": 600, "held_out": 300, "image_size": 20}
    settings |= {"decoder": "none", "coefficients": "uniform", "filters": 16}
    settings |= {"types": 4, "epochs": 4, "batch_size": 20, "learning_rate": 0.01}
    settings |= {"ema_momentum": momentum}
    settings |= {"compute": {"precision": "float32"}}
    model = registry.create("capsnet", "small", **settings)
    run = train(model, folder, reporter=Reporter(write=str), stage="capsnet")
    model = keras.models.load_model(folder / "capsnet" / "model.keras", compile=False)
    history = json.loads((folder / "capsnet" / "history.json").read_text())
    data = run.data.held_out
    found = np.asarray(model.classify(data.images / np.float32(255))["classes"])
    return model.get_weights(), history, np.mean(found == data.labels)


@pytest.mark.long
def test_it_is_judged_and_saved_and_training_goes_on_without_it(tmp_path):
    plain, history, right = trained(tmp_path / "plain", None)
    # Nearly the weights after the first of sixty steps, which know nothing yet.
    average, same, averaged_right = trained(tmp_path / "averaged", 0.999)
    for one, other in zip(history, same):
        # Another graph, whose sums may come in another order.
        np.testing.assert_allclose(one["loss"], other["loss"], rtol=1e-4)
    assert max(np.abs(a - b).max() for a, b in zip(plain, average)) > 1e-3
    # What both name rightly differs by far, so that each figure is known by its weights.
    assert abs(right - averaged_right) > 0.1
    assert abs(history[-1]["val_accuracy"] - right) < 1 / 300
    assert abs(same[-1]["val_accuracy"] - averaged_right) < 1 / 300
