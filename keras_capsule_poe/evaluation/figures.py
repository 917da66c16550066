"""First figures of a trained model: reconstruction, free energy, linear probes."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions import free_energy, squash
from keras_capsule_poe.training.parts import pixels, predict


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
    train = predict(lambda images: _coded(product, images)[0], train_images)
    held_out = predict(lambda images: _coded_and_decoded(product, images), test.images)
    train["pixels"], held_out["pixels"] = pixels(train_images), pixels(test.images)
    energy, held_out_energy = (float(x["free_energy"].mean()) for x in (train, held_out))
    return {
        "reconstruction": {
            name: float(held_out[name].sum() / held_out[f"{of} size"].sum())
            for name, of in _DECODED.items()
        },
        "free_energy": {
            "train": energy,
            "test": held_out_energy,
            "gap": held_out_energy - energy,
        },
        "probe": _probes(train, held_out, train_labels, test.labels),
    }


# What is decoded, and what it is compared with.
_DECODED = {
    "autoencoder": "pixels",
    "divergence_step": "pixels",
    "whole_code": "pixels",
    "primary_capsules": "capsules",
}


def _coded(product, images):
    """Features, capsules and free energy of images; and their primary capsules."""
    features = product.autoencoder.encode(images)
    x = product.primary(features)
    z = product.encoder.experts.route(x).z
    return {"features": features, "capsules": squash(z), "free_energy": free_energy(z)}, x


def _coded_and_decoded(product, images):
    """The same, with the squared errors of what is decoded from them and what it is of."""
    coded, x = _coded(product, images)
    whole = product.render(coded["capsules"])
    return {
        **coded,
        "autoencoder": _squares(product.autoencoder.decode(coded["features"]) - images),
        "divergence_step": _squares(
            product.from_primary(product.encoder.experts.gibbs_step(x)) - images
        ),
        "whole_code": _squares(whole["images"] - images),
        "primary_capsules": _squares(whole["primary_capsules"] - x),
        "pixels size": _squares(images),
        "capsules size": _squares(x),
    }


def _squares(difference):
    """Sum of squares of each image, (B,)."""
    return ops.sum(ops.square(ops.reshape(difference, (ops.shape(difference)[0], -1))), axis=-1)


def _probes(train, test, train_labels, test_labels):
    if train_labels is None or test_labels is None:
        return {}
    return {
        name: linear_probe(_flat(train[name]), train_labels, _flat(test[name]), test_labels)
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


def _flat(array):
    return array.reshape(len(array), -1)


def _taken(labels, chosen):
    return None if labels is None else labels[chosen]
