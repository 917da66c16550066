"""Keras' own test of a layer, `TestCase.run_layer_test`, for every public layer.

It checks serialization, `build`, symbolic and eager calls, their shapes, a compiled training step
and mixed precision, on TensorFlow here and on other backends in processes of their own. There are
no exceptions. Layers without masks say so in `CASES`: images have no padding, the energy of
neurons is that of all of them, and `CapsuleMask` takes class capsules, which are all there.
"""

import inspect

import keras
import numpy as np
import pytest
from keras.src.testing import TestCase

import keras_capsule_poe
from keras_capsule_poe import (
    CapsuleLength,
    CapsuleMask,
    CapsulePoE,
    ConvCapsules,
    ConvDecoder,
    ConvEMCapsules,
    DenseDecoder,
    EMCapsules,
    FastConv2D,
    FastConv2DTranspose,
    NeuronMixture,
    NeuronPoE,
    PrimaryCapsules,
    PrimaryMatrixCapsules,
    RestrictedBoltzmannMachine,
    RoutingLayer,
    SelfAttentionRouting,
    Squash,
    Standardize,
    Whitening,
)

IMAGES, CAPSULES, MATRICES = (2, 6, 5, 3), (2, 6, 4), ((2, 5, 5, 3, 2, 2), (2, 5, 5, 3))
OUT = (2, 3, 5)

# Class, arguments, input shape, expected output shape, trainable weights, masks.
CASES = {
    "squash": (Squash, {"kind": "exponential"}, CAPSULES, CAPSULES, 0, True),
    "length": (CapsuleLength, {}, CAPSULES, (2, 6), 0, True),
    "mask": (CapsuleMask, {}, CAPSULES, CAPSULES, 0, False),
    "standardize": (Standardize, {}, IMAGES, IMAGES, 0, False),
    "convolution": (FastConv2D, {"filters": 4, "kernel_size": 3}, IMAGES, (2, 4, 3, 4), 2, False),
    "transposed": (
        FastConv2DTranspose, {"filters": 4, "kernel_size": 3}, IMAGES, (2, 8, 7, 4), 2, False,
    ),
    "conv capsules": (
        ConvCapsules, {"types": 2, "dim": 3, "kernel_size": 3}, IMAGES, (2, 8, 3), 2, False,
    ),
    "conv decoder": (
        ConvDecoder, {"image_shape": (7, 6, 2), "filters": 4}, CAPSULES, (2, 7, 6, 2), 8, False,
    ),
    "dense decoder": (
        DenseDecoder, {"image_shape": (7, 6, 2), "units": (4,)}, CAPSULES, (2, 7, 6, 2), 4, False,
    ),
    "primary capsules": (PrimaryCapsules, {"dim": 5}, IMAGES, (2, 18, 5), 0, False),
    "routing": (RoutingLayer, {"capsules": 3, "dim": 5}, CAPSULES, OUT, 1, True),
    "plain routing": (
        RoutingLayer, {"capsules": 3, "dim": 5, "implementation": "reference"}, CAPSULES, OUT, 1,
        True,
    ),
    "dot routing": (
        RoutingLayer,
        {"capsules": 3, "dim": 5, "agreement": "dot", "use_bias": True, "leaky": True},
        CAPSULES, OUT, 2, True,
    ),
    "shared routing": (
        RoutingLayer,
        {"capsules": 3, "dim": 5, "shared_weights": True, "softmax_over": "inputs"},
        CAPSULES, OUT, 1, True,
    ),
    "attention": (SelfAttentionRouting, {"capsules": 3, "dim": 5}, CAPSULES, OUT, 2, True),
    "experts": (CapsulePoE, {"capsules": 3, "dim": 5}, CAPSULES, OUT, 1, True),
    "whitening": (Whitening, {}, CAPSULES, CAPSULES, 0, False),
    "rbm": (RestrictedBoltzmannMachine, {"units": 3}, (2, 6), (2, 3), 3, False),
    "neurons": (NeuronPoE, {"capsules": 3, "dim": 5}, CAPSULES, OUT, 3, False),
    "mixture": (NeuronMixture, {"capsules": 3, "dim": 5}, CAPSULES, OUT, 3, False),
    "primary matrices": (
        PrimaryMatrixCapsules, {"types": 4, "size": 2}, IMAGES,
        ((2, 6, 5, 4, 2, 2), (2, 6, 5, 4)), 2, False,
    ),
    "conv EM": (
        ConvEMCapsules, {"types": 4}, MATRICES, ((2, 3, 3, 4, 2, 2), (2, 3, 3, 4)), 3, False,
    ),
    "plain EM": (
        ConvEMCapsules, {"types": 4, "implementation": "reference"}, MATRICES,
        ((2, 3, 3, 4, 2, 2), (2, 3, 3, 4)), 3, False,
    ),
    "EM": (EMCapsules, {"types": 4}, MATRICES, ((2, 1, 1, 4, 2, 2), (2, 1, 1, 4)), 3, False),
}  # fmt: skip


def check(name):
    """Run the harness of Keras on one case."""
    kind, arguments, shape, expected, trained, masks = CASES[name]
    TestCase("run_layer_test").run_layer_test(
        kind,
        init_kwargs=arguments,
        input_shape=shape,
        expected_output_shape=expected,
        expected_num_trainable_weights=trained,
        expected_num_losses=0,
        supports_masking=masks,
    )


# The harness trains on a generator, and gives models whose layer has no or unused weights.
@pytest.mark.some(2)
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_layer_on_tensorflow(name):
    check(name)


PROGRAM = """
import importlib.util, traceback
spec = importlib.util.spec_from_file_location("cases", {path!r})
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
failed = []
for name in cases.CASES:
    try:
        cases.check(name)
    except BaseException:
        failed.append(name + chr(10) + traceback.format_exc()[-1500:])
assert not failed, chr(10).join(failed)
"""


# Jax compiles a step for each layer.
@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.long), "torch"])
def test_layers_on_other_backends(run_on, backend):
    run_on(backend, PROGRAM.format(path=__file__))


def test_every_public_layer_is_there():
    values = (getattr(keras_capsule_poe, name) for name in keras_capsule_poe.__all__)
    layers = {v for v in values if inspect.isclass(v) and issubclass(v, keras.layers.Layer)}
    # A former name.
    layers -= {keras_capsule_poe.ExpertFrames}
    assert {case[0] for case in CASES.values()} == {
        layer for layer in layers if not issubclass(layer, keras.Model)
    }


@pytest.mark.some(3)
@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16", "bfloat16", "float16"])
def test_outputs_have_the_dtype_of_the_policy(policy):
    """Rejects weights and inputs of different dtypes, and float32 that stays."""
    for name, (kind, arguments, shape, *_) in CASES.items():
        layer, random = kind(**arguments, dtype=policy), np.random.default_rng(0)
        shapes = shape if shape is MATRICES else [shape]
        inputs = [random.uniform(0.1, 0.4, size).astype("float32") for size in shapes]
        found = layer(inputs if shape is MATRICES else inputs[0])
        for output in keras.tree.flatten(found):
            assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype, name
            assert np.isfinite(np.asarray(output).astype("float64")).all(), name
