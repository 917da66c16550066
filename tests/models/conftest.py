"""A command on a trained model, and a training of a classifier that is stopped."""

import keras
import numpy as np
import pytest

from keras_capsule_poe.training import Reporter, train


@pytest.fixture
def done(capspoe, folder):
    """Runs a command on the model of the module's `folder`; its output."""

    def run(command, *arguments, code=0):
        result = capspoe(command, "--model-dir", folder, *arguments)
        assert result.exit_code == code, result.output
        return result.output

    return run


class Interrupted(Exception):
    pass


class Stopping(Reporter):
    """Stops a training of a few steps in the middle of its second epoch."""

    def step(self, stage, epoch, step, logs):
        if (epoch, step) == (1, 3):
            raise Interrupted


@pytest.fixture
def stopped():
    """Trains a stage of a model until it is stopped."""

    def train_and_stop(model, folder, stage):
        with pytest.raises(Interrupted):
            train(model, folder, reporter=Stopping(write=str), stage=stage)

    return train_and_stop


@pytest.fixture
def goes_on_alike(stopped):
    """Trains a classifier in two parts and as a whole: both have the same weights."""

    def check(model, folder):
        stage = model.settings.stage
        stopped(model, folder / "parts", stage)
        weights = []
        for name in ("parts", "whole"):
            train(model, folder / name, reporter=Reporter(write=str), stage=stage)
            path = folder / name / stage / "model.keras"
            weights.append(keras.models.load_model(path, compile=False).get_weights())
        for part, whole in zip(*weights):
            # The same float32 operations.
            np.testing.assert_allclose(part, whole, rtol=1e-4, atol=1e-6)

    return check
