"""The convolutional VAE has the asked size and learns, and both kinds of its draws are images."""

import numpy as np
import pytest
import vae


@pytest.mark.parametrize("parameters", [400_000, 1_500_000])
def test_as_many_parameters_as_asked_for(parameters):
    hidden = vae.hidden_units(parameters, (28, 28, 1), 16)
    model = vae.ConvolutionalVAE((28, 28, 1), hidden, 16)
    assert model.count_params() == pytest.approx(parameters, rel=0.02)


@pytest.mark.long
def test_it_learns_and_draws(monkeypatch):
    monkeypatch.setattr(vae, "COMPONENTS", 2)
    # Two kinds of images: the upper half is bright, or the lower one.
    images = np.zeros((256, 28, 28, 1), "uint8")
    images[:128, :14] = images[128:, 14:] = 255
    model, about = vae.fitted(images, 400_000, 10.0, code=2, rate=3e-3)
    assert about["steps"] > 5
    for drawn in vae.draws(model, images, 40, code=2).values():
        assert drawn.shape == (40, 28, 28, 1) and drawn.min() >= 0 and drawn.max() <= 1
    upper = drawn[:, :14].mean(axis=(1, 2, 3)) > drawn[:, 14:].mean(axis=(1, 2, 3))
    assert 0.2 < upper.mean() < 0.8


def test_the_loss_is_the_bound():
    model = vae.ConvolutionalVAE((28, 28, 1), 4, 2, beta=0.5)
    x = np.random.default_rng(0).uniform(size=(3, 28, 28, 1)).astype("float32")
    found = {name: np.asarray(value, "float64") for name, value in model(x).items()}
    p = 1 / (1 + np.exp(-found["logits"]))
    entropy = -(x * np.log(p) + (1 - x) * np.log(1 - p)).sum(axis=(1, 2, 3)).mean()
    squares = np.square(found["mean"]) + np.exp(found["log_variance"])
    divergence = ((squares - found["log_variance"] - 1).sum(axis=1) / 2).mean()
    loss = float(model.compute_loss(x, y_pred={k: np.float32(v) for k, v in found.items()}))
    assert loss == pytest.approx(entropy + 0.5 * divergence, rel=1e-5)
