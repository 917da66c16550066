"""Averages of weights: of which steps they are, and that training does not see them.

To be rejected: an average that begins at zero, and Keras' own end of `fit`, which puts the average
in the place of the weights that the next call goes on from.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe.training.optimizers import AveragedAdam, AveragedMuon, averaged

OPTIMIZERS = [AveragedAdam, AveragedMuon]
FEWER = [AveragedAdam, pytest.param(AveragedMuon, marks=pytest.mark.long)]
STEPS, MOMENTUM = 6, 0.7


class Recorded(keras.callbacks.Callback):
    """The weights after every step."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def on_train_batch_end(self, batch, logs=None):
        self.weights.append(self.model.get_weights())


def trained(optimizer, calls, **average):
    """A model after `STEPS` steps in so many calls of `fit`, and its weights after each."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(4, 6, 6, 9)), random.normal(size=(4, 2))
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Conv2D(8, 3), keras.layers.Flatten(), keras.layers.Dense(2)]
    model, recorded = keras.Sequential(layers), Recorded()
    model.compile(optimizer(0.02, **average), loss="mse", jit_compile=False)
    model.build((None, *x.shape[1:]))
    # TensorFlow would trace twice a step that does.
    model.optimizer.build(model.trainable_variables)
    for _ in range(calls):
        epochs = STEPS // calls
        model.fit(x, y, batch_size=4, epochs=epochs, verbose=0, callbacks=[recorded])
    return model, recorded.weights


@pytest.mark.some(2)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("calls", [1, pytest.param(3, marks=pytest.mark.long)])
def test_the_average_is_of_all_steps_so_far(optimizer, calls):
    model, weights = trained(optimizer, calls, use_ema=True, ema_momentum=MOMENTUM)
    means = [np.float64(value) for value in weights[0]]
    for later in weights[1:]:
        means = [MOMENTUM * mean + (1 - MOMENTUM) * value for mean, value in zip(means, later)]
    # Six sums in float32 of numbers below one.
    near = {"rtol": 0, "atol": 1e-6}
    with averaged(model):
        for value, mean, last in zip(model.get_weights(), means, weights[-1]):
            np.testing.assert_allclose(value, mean, **near)
            assert np.abs(value - last).max() > 1e-3
    for value, last in zip(model.get_weights(), weights[-1]):
        np.testing.assert_array_equal(value, last)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", FEWER)
def test_training_does_not_see_it(optimizer):
    alone, _ = trained(optimizer, 1)
    for calls in (1, 2):
        model, _ = trained(optimizer, calls, use_ema=True, ema_momentum=MOMENTUM)
        for value, same in zip(model.get_weights(), alone.get_weights()):
            # Another graph, whose sums may come in another order.
            np.testing.assert_allclose(value, same, rtol=1e-5, atol=1e-7)


@pytest.mark.long
def test_weights_come_back_after_an_error_and_where_there_is_no_average():
    model, weights = trained(AveragedAdam, 1, use_ema=True, ema_momentum=MOMENTUM)
    with pytest.raises(KeyError), averaged(model):
        raise KeyError
    np.testing.assert_array_equal(model.get_weights()[0], weights[-1][0])
    model, weights = trained(AveragedAdam, 1)
    with averaged(model):
        np.testing.assert_array_equal(model.get_weights()[0], weights[-1][0])


def test_an_optimizer_of_keras_alone_is_refused():
    model, _ = trained(keras.optimizers.Adam, 1, use_ema=True)
    with pytest.raises(ValueError, match="must be a `KeepsAverage`.*Received: Adam"):
        with averaged(model):
            pass


@pytest.mark.parametrize("optimizer", FEWER)
def test_it_is_saved_with_its_model(optimizer, tmp_path):
    model, _ = trained(optimizer, 1, use_ema=True, ema_momentum=MOMENTUM)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is optimizer
    with averaged(model), averaged(again):
        for value, same in zip(again.get_weights(), model.get_weights()):
            np.testing.assert_array_equal(value, same)
