"""The streamed form gives the plain form's numbers, whatever the options, sizes and values."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe.functions import blocks, implementations
from keras_capsule_poe.functions.squash import squash

plain = implementations.get("plain")
streamed = implementations.get("streamed")

# (B, I, J, D, E): encoder's and decoder's shapes, one capsule, one dimension, groups of capsules.
SIZES = {
    "encoder": (5, 40, 6, 8, 16),
    "decoder": (5, 6, 40, 16, 8),
    "one output": (3, 7, 1, 4, 5),
    "one input": (3, 1, 7, 4, 5),
    "one dimension": (2, 9, 4, 1, 1),
    "one image": (1, 12, 5, 3, 2),
    "groups": (4, 41, 37, 3, 2),
    "groups of inputs": (4, 37, 41, 2, 3),
}


def data(name, dtype="float32", gain=1.0, seed=0):
    b, i, j, d, e = SIZES[name]
    random = np.random.default_rng(seed)
    x = squash(random.normal(size=(b, i, d)).astype(dtype))
    z = random.normal(size=(b, j, e)).astype(dtype)
    kernel = gain * random.normal(size=(i, j, e, d)).astype(dtype)
    return x, ops.convert_to_tensor(z), ops.convert_to_tensor(kernel.astype(dtype))


def assert_same(ours, theirs, tolerance=1e-5):
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs)):
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max(), np.abs(a - b).max()


def options_for(name, **options):
    outputs = SIZES[name][2]
    if options.pop("biased", False):
        options["bias"] = ops.linspace(-1.0, 1.0, outputs)
    return options


MATRIX = [
    {"normalize": n, "kind": k, "iterations": r, **more}
    for n, k, (r, more) in itertools.product(
        ("inputs", "outputs"),
        ("cosine", "dot"),
        (
            (0, {}),
            (0, {"biased": True, "scale": 3.0}),
            (1, {"scale": 5.0}),
            (3, {"temperature": 4.0, "activation_prior": 0.5, "biased": True}),
        ),
    )
]


@pytest.mark.parametrize("options", MATRIX, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_every_option_gives_the_plain_numbers(name, options):
    x, z, kernel = data(name, gain=0.3)
    options = options_for(name, **options)
    ours, theirs = streamed.route(x, kernel, **options), plain.route(x, kernel, **options)
    assert_same(ours, theirs)
    c = theirs.coefficients
    assert_same(streamed.encoder_divergence(x, kernel, c), plain.encoder_divergence(x, kernel, c))
    assert_same(
        streamed.decoder_divergence(x, z, kernel, c), plain.decoder_divergence(x, z, kernel, c)
    )
    assert_same(
        streamed.routed_encoder_divergence(x, kernel, **options),
        plain.routed_encoder_divergence(x, kernel, **options),
    )
    assert_same(
        streamed.routed_decoder_divergence(x, z, kernel, **options),
        plain.routed_decoder_divergence(x, z, kernel, **options),
    )
