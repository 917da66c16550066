"""First figures of a trained model: reconstruction, free energy, linear probes."""

import keras
import numpy as np

from keras_capsule_poe.training.parts import pixels, predict, relative_error

FEATURES_CHUNK = 500


def evaluate(product, data, probe_images=10_000, test_images=None, seed=0):
    """Figures of a model on its data set.

    Args:
        product: `ProductOfExpertCapsules`.
        data: `ImageData`.
        probe_images: int, training images that a linear probe learns from.
        test_images: int, the first so many test images; `None`: all.
        seed: int, of the probes' choice of images.

    Returns:
        dict: `reconstruction` (relative squared errors of pixels by the autoencoder, one
        contrastive-divergence step and the whole code, and of the primary capsules),
        `free_energy` (mean of training and test images and their gap, nats) and `probe`
        (accuracy on test images from capsules, autoencoder features and pixels; empty without
        labels).
    """
    test = data.test if test_images is None else data.test.head(test_images)
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(data.train))[:probe_images]
    train_images, train_labels = data.train.images[chosen], _taken(data.train.labels, chosen)
    train, held_out = _coded(product, train_images), _coded(product, test.images)
    errors = _reconstruction(product, test.images)
    gap = held_out["free_energy"].mean() - train["free_energy"].mean()
    return {
        "reconstruction": errors,
        "free_energy": {
            "train": float(train["free_energy"].mean()),
            "test": float(held_out["free_energy"].mean()),
            "gap": float(gap),
        },
        "probe": _probes(train, held_out, train_labels, test.labels),
    }


def _coded(product, images):
    """Features, capsules and free energy of images, a chunk at a time."""
    features = predict(product.autoencoder.encode, images)
    x = [
        _codes(product, features[start : start + FEATURES_CHUNK])
        for start in range(0, len(features), FEATURES_CHUNK)
    ]
    capsules, energies = (np.concatenate(part) for part in zip(*x))
    return {
        "pixels": pixels(images).reshape(len(images), -1),
        "features": features.reshape(len(images), -1),
        "capsules": capsules.reshape(len(images), -1),
        "free_energy": energies,
    }


def _codes(product, features):
    from keras_capsule_poe.functions import free_energy, squash

    z = product.encoder.experts.route(product.primary(features)).z
    return [keras.ops.convert_to_numpy(part) for part in (squash(z), free_energy(z))]


def _reconstruction(product, images):
    original = pixels(images)
    decoded = {
        "autoencoder": predict(product.autoencoder, images),
        "divergence_step": predict(product.gibbs_step, images),
        "whole_code": predict(product, images),
    }
    errors = {name: relative_error(value, original) for name, value in decoded.items()}
    x = predict(product.to_primary, images)
    decoded_x = predict(lambda batch: product.reconstruct(batch)["primary_capsules"], images)
    return {**errors, "primary_capsules": relative_error(decoded_x, x)}


def _probes(train, test, train_labels, test_labels):
    if train_labels is None or test_labels is None:
        return {}
    return {
        name: linear_probe(train[name], train_labels, test[name], test_labels)
        for name in ("capsules", "features", "pixels")
    }


def linear_probe(x_train, y_train, x_test, y_test):
    """Test accuracy of a ridge classifier on standardised inputs.

    Args:
        x_train: Array (N, K).
        y_train: Integer array (N,).
        x_test: Array (M, K).
        y_test: Integer array (M,).

    Returns:
        float in [0, 1].
    """
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # In closed form: on thousands of features logistic regression takes minutes to converge.
    probe = make_pipeline(StandardScaler(), RidgeClassifier(alpha=100.0))
    return float(probe.fit(x_train, y_train).score(x_test, y_test))


def _taken(labels, chosen):
    return None if labels is None else labels[chosen]
