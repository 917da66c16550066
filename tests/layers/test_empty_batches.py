"""Layers called with no image at all, outside of any graph, as a user may with a filtered batch.

Rejected: a largest number of nothing, which TensorFlow refuses where there is no graph. Its own
convolutions refuse an empty batch, too, on some processors.
"""

import numpy as np
import pytest

import keras_capsule_poe as kcp


def none_of(*shape):
    return np.zeros((0, *shape), "float32")


def matrices():
    return kcp.PrimaryMatrixCapsules(2)(none_of(6, 6, 3))


LAYERS = {
    "cosine": lambda: kcp.RoutingLayer(3, 4)(none_of(5, 8)),
    "leaky dot with a bias": lambda: kcp.RoutingLayer(
        3, 4, agreement="dot", leaky=True, use_bias=True
    )(none_of(5, 8)),
    "shared": lambda: kcp.RoutingLayer(3, 4, shared_weights=True, logits="replaced")(none_of(5, 8)),
    "plain": lambda: kcp.RoutingLayer(3, 4, implementation="reference")(none_of(5, 8)),
    "uniform": lambda: kcp.RoutingLayer(3, 4, routing_iterations=1)(none_of(5, 8)),
    "self-attention": lambda: kcp.SelfAttentionRouting(3, 4)(none_of(5, 8)),
    "mask": lambda: kcp.CapsuleMask()(none_of(3, 4)),
    "expert": lambda: kcp.CapsulePoE(3, 4)(none_of(5, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_capsules_of_no_image(name):
    assert LAYERS[name]().shape == (0, 3, 4)


def test_lengths_and_matrices_of_no_image():
    assert kcp.CapsuleLength()(none_of(3, 4)).shape == (0, 3)
    pose, activation = kcp.EMCapsules(2)(matrices())
    assert pose.shape == (0, 1, 1, 2, 4, 4) and activation.shape == (0, 1, 1, 2)
    pose, activation = kcp.ConvEMCapsules(2)(matrices())
    assert pose.shape == (0, 4, 4, 2, 4, 4) and activation.shape == (0, 4, 4, 2)
