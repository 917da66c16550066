"""Inputs of another shape than a layer was built for, or that do not belong together.

Rejected: one number, expert or row that stands for all; images that become others of another size.
"""

import numpy as np
import pytest

from keras_capsule_poe import (
    CapsuleMask,
    ConvEMCapsules,
    EMCapsules,
    NeuronPoE,
    RestrictedBoltzmannMachine,
    RoutingLayer,
    SelfAttentionRouting,
    Standardize,
    Whitening,
)


def capsules(height=4, width=5, types=2, size=4, images=2):
    random = np.random.default_rng(0)
    pose = random.normal(size=(images, height, width, types, size, size))
    return pose, random.uniform(0.1, 0.9, size=pose.shape[:4])


@pytest.mark.parametrize(
    "layer, others",
    [
        (ConvEMCapsules(3), [{"types": 1}, {"types": 4}, {"size": 2}]),
        (EMCapsules(3), [{"types": 1}, {"types": 4}]),
        (EMCapsules(3, shared_weights=False), [{"height": 2, "width": 10}, {"height": 8}]),
    ],
)
def test_other_capsules_than_it_was_built_for_are_refused(layer, others):
    """Rejects two images that become one of twice the types."""
    layer(capsules())
    for other in others:
        with pytest.raises(ValueError, match="incompatible with the layer"):
            layer(capsules(**other))


def test_poses_and_activations_are_of_the_same_images():
    layer = EMCapsules(3)
    (pose, activation), (_, fewer) = capsules(), capsules(images=1)
    layer((pose, activation))
    with pytest.raises(ValueError, match="EMCapsules needs poses .* and activations"):
        layer((pose, fewer))


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 3, 1), (3, 4)])
def test_other_experts_are_refused(shape):
    """Rejects one expert that stands for all."""
    whitening = Whitening()
    whitening.build((None, 3, 4))
    with pytest.raises(ValueError, match="incompatible with the layer"):
        whitening(np.ones(shape, "float32"))


def test_other_neurons_of_a_boltzmann_machine_are_refused():
    """Rejects one number that stands for all neurons."""
    rbm = RestrictedBoltzmannMachine(3)
    rbm.build((None, 4))
    for shape in ((2, 1), (2, 5, 4), (1, 5)):
        with pytest.raises(ValueError, match="incompatible with the layer"):
            rbm(np.ones(shape, "float32"))
    for shape in ((2, 1), (1, 5)):
        with pytest.raises(ValueError, match=r"`v` must have shape \(\.\.\., 4\).*Received"):
            rbm.free_energy(np.ones(shape, "float32"))


@pytest.mark.parametrize("shape", [(2, 6, 1), (2, 1, 4), (2, 6, 5)])
def test_other_neurons_of_capsules_are_refused(shape):
    """Rejects one number that stands for all neurons of a capsule."""
    layer = NeuronPoE(3, 2)
    layer.build((None, 6, 4))
    with pytest.raises(ValueError, match=r"`v` must have shape \(\.\.\., 6, 4\).*Received"):
        layer.free_energy(np.ones(shape, "float32"))


def test_a_mask_of_other_images_is_refused():
    """Rejects one row of labels that stands for all images."""
    with pytest.raises(ValueError, match="`labels` must .* one row for each of the inputs"):
        CapsuleMask()(np.ones((3, 6, 2), "float32"), np.eye(6, dtype="float32")[:1])


@pytest.mark.parametrize(
    "layer, shapes",
    [
        (Standardize(), [(), (3,), (3, 4), (3, 4, 4), (3, 4, 4, 1, 1), (3, 0, 4, 1), (3, 4, 4, 0)]),
        (SelfAttentionRouting(3, 4), [(3, 4), (3, 0, 4), (3, 4, 0), (3, 2, 4, 4)]),
    ],
)
def test_inputs_without_pixels_or_capsules_are_refused_in_one_line(layer, shapes):
    for shape in shapes:
        with pytest.raises(ValueError, match="Received: (input_)?shape.*") as error:
            layer.build(shape)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize("kind", [RoutingLayer, SelfAttentionRouting])
def test_capsules_of_any_finite_size_are_routed(kind, implementation):
    """Rejects NaN for entries of 1e19, whose squares float32 does not hold, or of 3e38."""
    layer = kind(3, 4, implementation=implementation)
    for size in (1e15, 1e19, 1e30, 3e38):
        assert np.isfinite(layer(np.full((2, 5, 6), size, "float32"))).all()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 0), (2, 8, 8, 3)])
def test_layers_of_capsules_say_what_they_take(shape):
    for layer in (CapsuleMask(), RoutingLayer(3, 4), SelfAttentionRouting(3, 4)):
        with pytest.raises(ValueError, match=r"\(batch, capsules, dim\)"):
            layer(np.ones(shape, "float32"))
