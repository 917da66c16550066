"""Matrix capsules learn at ten times their rate for long, and every number stays finite.

Rejected: variances that may vanish around a single vote.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    ConvEMCapsules,
    EMCapsules,
    MatrixCapsNet,
    PrimaryMatrixCapsules,
    SpreadLoss,
    registry,
)

SHAPE, CLASSES = (7, 6, 1), 3
STEPS = 100
# Settings of EM that the recipes have, and layers alone have otherwise.
COSTS = (
    "inverse_temperature",
    "variance_floor",
    "assignment_temperature",
)


def network(**options):
    keras.utils.set_random_seed(0)
    # Two have all kinds of steps, and a smaller graph.
    options = {"routing_iterations": 2, **options}
    layers = [
        PrimaryMatrixCapsules(2, size=2),
        ConvEMCapsules(2, kernel_size=3, strides=2, **options),
        EMCapsules(CLASSES, **options),
    ]
    # The whole margin from the start.
    model = MatrixCapsNet(keras.layers.Conv2D(4, 3), layers, SHAPE, SpreadLoss(0.9))
    model.build()
    return model


def data(shape):
    """Eight images, an empty and a full one among them, of random classes, learnt by heart."""
    random = np.random.default_rng(0)
    images = random.uniform(size=(8, *shape)).astype("float32")
    images[0], images[1] = 0, 1
    return images, np.eye(CLASSES, dtype="float32")[random.integers(CLASSES, size=8)]


def trained(model, rate, shape, rounds=20):
    """Losses of the rounds of `STEPS` steps, each of which leaves finite numbers."""
    images, labels = data(shape)
    optimizer = keras.optimizers.Adam(rate, epsilon=1e-8)
    # Operations as small as these take longer to call than to run, but for compiled ones.
    model.compile(optimizer, jit_compile=True, steps_per_execution=STEPS)
    batches = [np.tile(x, (STEPS // 2, *(1,) * (x.ndim - 1))) for x in (images, labels)]
    losses = []
    for _ in range(rounds):
        history = model.fit(*batches, batch_size=4, shuffle=False, verbose=0).history
        losses += history["loss"]
        found = [*model.get_weights(), *keras.tree.flatten(model.layer_by_layer(images))]
        assert all(np.isfinite(x).all() for x in found)
    assert int(optimizer.iterations) == rounds * STEPS
    assert np.isfinite(losses).all()
    return losses


@pytest.mark.long
@pytest.mark.parametrize("routing", ["em", "variational"])
def test_many_steps_at_ten_times_the_rate(routing):
    net = registry.settings("matrix-capsules", routing=routing).net
    costs = {name: getattr(net, name) for name in COSTS if routing == "em"}
    costs |= {"normalize_mass": True, "activation_scale": 10.0} if routing == "em" else {}
    losses = trained(network(routing=routing, **costs), 10 * net.first_rate, SHAPE)
    # It did learn, where what stands still would stay finite, too: of equal activations the loss
    # is 2 x 0.9^2.
    assert min(losses) < 1.1


@pytest.mark.long
def test_the_published_settings_at_ten_times_their_rate():
    """Small variances, sharp assignments, and log-odds that move by thousands."""
    sizes = {
        "filters": 4,
        "primary_types": 2,
        "types": 2,
        "last_types": 2,
        "size": 2,
        "routing_iterations": 2,
    }
    settings = registry.settings("matrix-capsules", "official", classes=CLASSES, **sizes)
    settings.set("compute.precision", "float32")
    model = MatrixCapsNet.of_shape(settings, (17, 17, 1))
    model.spread.set_margin(0.9)
    before = model.get_weights()
    trained(model, 10 * settings.net.first_rate, (17, 17, 1))
    assert all(np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True))
