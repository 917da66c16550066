"""A file is of its family's model, or says whose it is."""

import keras
import pytest

from keras_capsule_poe.families.saved import load_as


def test_only_a_model_of_the_kind_is_loaded(tmp_path):
    path = tmp_path / "model.keras"
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(path)
    assert isinstance(load_as(keras.Sequential, path), keras.Sequential)
    with pytest.raises(ValueError, match="it holds a Sequential"):
        load_as(keras.layers.Dense, path)
