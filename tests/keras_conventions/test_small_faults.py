"""Small faults of layers, metrics, data and names, each with what it rejects."""

import hashlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    CapsuleEncoder,
    CapsuleMask,
    CapsulePoE,
    NeuronExperts,
    NeuronMixture,
    NeuronPoE,
    OrientationConcentration,
    PrimaryCapsules,
    RelativeError,
    RoutingLayer,
)
from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.errors import DataError


@pytest.mark.long
def test_a_star_import_leaves_modules_of_keras():
    program = (
        "from keras import layers, models, losses, metrics, callbacks, ops, utils\n"
        "import keras\n"
        "from keras_capsule_poe import *\n"
        "assert CapsNet and RoutingLayer\n"
        "for name in dir(keras):\n"
        "    if not name.startswith('_') and name in globals():\n"
        "        assert globals()[name] is getattr(keras, name), name\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


@pytest.mark.parametrize("build_with", [6, None])
def test_the_mean_coefficient_of_shared_weights(build_with):
    """Rejects a sum of coefficients that counts one input."""
    layer = RoutingLayer(3, 4, shared_weights=True, softmax_over="inputs", coefficient_sum="mean")
    layer.build((None, build_with, 5))
    x = np.random.default_rng(0).normal(size=(2, 6, 5)).astype("float32")
    c = np.asarray(layer.route(x).coefficients)
    if build_with is None:
        with pytest.raises(ValueError, match="number of inputs must be known"):
            _ = layer.coefficient_scale
    else:
        assert layer.coefficient_scale == pytest.approx(c.sum(axis=1)[0, 0], rel=1e-5) == 6


def test_the_energy_of_a_mixture_given_coefficients():
    """Rejects coefficients that are ignored: F(v) = |v - b|^2/2 - sum log(1 + exp(a + W v))."""
    experts = NeuronMixture(2, 3, dtype="float64")
    experts.build((None, 4, 2))
    random = np.random.default_rng(0)
    for weight in (experts.kernel, experts.hidden_bias, experts.visible_bias):
        weight.assign(random.normal(size=weight.shape))
    v, c = random.normal(size=(5, 4, 2)), random.uniform(size=(5, 4, 2))
    fields = np.einsum("bij,ijed,bid->bje", c, experts.kernel, v) + np.asarray(experts.hidden_bias)
    bias = np.asarray(experts.visible_bias)
    expected = (v**2 / 2 - bias * v).sum(axis=(1, 2)) - np.logaddexp(0, fields).sum(axis=(1, 2))
    found = np.asarray(experts.free_energy(v, c))
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-6)
    assert not np.allclose(found, experts.free_energy(v))


@pytest.mark.parametrize(
    "make",
    [
        lambda balance: CapsuleEncoder(
            CapsulePoE(2, 3, use_routing_bias=True), load_balancing=balance
        ),
        lambda balance: NeuronExperts(
            NeuronPoE(2, 3, use_routing_bias=True), load_balancing=balance
        ),
    ],
)
def test_the_rate_of_load_balancing(make):
    assert make(0).load_balancing == 0 and make(1).load_balancing == 1
    with pytest.raises(
        ValueError, match=r"`load_balancing` must lie in \[0, 1\]. Received: load_balancing=1.5"
    ):
        make(1.5)


def test_held_out_images_have_the_shape_of_the_others():
    images = ImageSet(np.zeros((3, 8, 8, 1), np.uint8))
    with pytest.raises(DataError, match=r"`held_out` must have images of the shape.*\(9, 8, 1\)"):
        ImageData(images, images, held_out=ImageSet(np.zeros((3, 9, 8, 1), np.uint8)))


def test_labels_of_several_objects_have_another_hash():
    def digest(labels):
        images = np.zeros((len(labels), 8, 8, 1), np.uint8)
        return ImageSet(images, np.array(labels, "int64")).label_fingerprint

    assert digest([0, 1, 2, 3]) != digest([[0, 1], [2, 3]]) != digest([[0, 1, 2, 3]])
    # Folders of earlier runs hold this one.
    alone = hashlib.sha256(np.arange(4, dtype="int64").tobytes()).hexdigest()
    assert digest([0, 1, 2, 3]) == alone[:16]


def test_a_mask_layer_in_a_summary(capsys):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.mask = CapsuleMask()

        def call(self, x, labels=None):
            return self.mask(x, labels)

    for more in ([], [np.eye(3)[:2]]):
        model = Model()
        model(np.ones((2, 3, 4), "float32"), *more)
        model.summary()
        assert "(2, 3, 4)" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_metrics_keep_their_dtype(dtype):
    x = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("float32")
    metrics = RelativeError(dtype=dtype), OrientationConcentration(5, 3, dtype=dtype)
    metrics[0].update_state(x, x + 1)
    metrics[1].update_state(x)
    for metric in metrics:
        found = {keras.backend.standardize_dtype(v.dtype) for v in metric.variables}
        assert found == {dtype}
        assert keras.backend.standardize_dtype(metric.result().dtype) == dtype


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float64", "bfloat16"])
def test_primary_capsules_outside_of_a_call(policy):
    """Rejects weights and features of different dtypes."""
    features = np.random.default_rng(0).normal(size=(4, 3, 3, 8)).astype("float32")
    primary = PrimaryCapsules(8, dtype=policy)
    primary.adapt([features])
    z = primary.to_capsules(features)
    assert keras.backend.standardize_dtype(z.dtype) == primary.compute_dtype
    back = np.asarray(primary.from_capsules(z)).astype("float32")
    np.testing.assert_allclose(back, features, atol=0.1)
    assert np.isfinite(np.asarray(primary(features)).astype("float32")).all()
