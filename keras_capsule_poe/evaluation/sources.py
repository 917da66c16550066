"""Where images to be judged come from: the model, its parts, controls, and reality."""

import contextlib
from dataclasses import replace

import numpy as np

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.controls import fit_controls
from keras_capsule_poe.evaluation.figures import FEATURE_IMAGES
from keras_capsule_poe.generation.sampling import joint_arrays, sample_arrays


def image_sources(product, data, test_images, samples, seed):
    """Sources of images by name; nothing is drawn before it is asked for.

    `real`: training images, the best that samples can be. `autoencoder`: its reconstructions of
    test images, the ceiling of all that is decoded by it. `whole_code`: test images decoded from
    all capsules; `routing_off`: the same with uniform routing coefficients, the ablation.
    `visited`, `restricted`, `complete`: single capsules, see `ProductOfExpertCapsules.draw`.
    `joint`: all capsules drawn together. The rest are controls, see `FeatureControl`, fitted to
    features of training images and decoded by the same autoencoder.

    Args:
        product: `ProductOfExpertCapsules`.
        data: `ImageData`.
        test_images: int, how many test images are reconstructed.
        samples: int, how many images are drawn.
        seed: int.

    Returns:
        dict: functions of nothing to images (N, H, W, C) and the capsule of each, or None.
    """
    chosen = np.random.default_rng(seed).permutation(len(data.train))
    test = data.test.images[:test_images]
    controls = {}

    def single(domain):
        drawn = sample_arrays(product, samples, seed, domain)
        return drawn["images"], drawn["capsule"]

    def routed_off():
        with routing_off(product):
            return map_batches(product, test), None

    def control(kind):
        if not controls:
            some = data.train.images[chosen[:FEATURE_IMAGES]]
            features = map_batches(product.autoencoder.encode, some)
            controls.update(fit_controls(features.reshape(len(features), -1), seed))
        drawn = controls[kind].sample(samples, seed)
        return map_batches(
            product.autoencoder.decode, drawn.reshape(-1, *product.autoencoder.feature_shape)
        ), None

    return {
        "real": lambda: (data.train.images[chosen[:samples]], None),
        "autoencoder": lambda: (map_batches(product.autoencoder, test), None),
        "whole_code": lambda: (map_batches(product, test), None),
        "routing_off": routed_off,
        **{domain: lambda d=domain: single(d) for domain in ("visited", "restricted", "complete")},
        "joint": lambda: (joint_arrays(product, samples, seed)["images"], None),
        **{
            kind: lambda k=kind: control(k)
            for kind in ("diagonal_gaussian", "full_gaussian", "gaussian_mixture")
        },
    }


@contextlib.contextmanager
def routing_off(product):
    """While open, the encoder's routing coefficients are all the same."""
    experts = product.encoder.experts
    options, bias = experts.options, experts.routing_bias
    experts.options, experts.routing_bias = replace(options, iterations=0), None
    try:
        yield
    finally:
        experts.options, experts.routing_bias = options, bias
