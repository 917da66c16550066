"""Figures of a trained model on its data: reconstruction, free energy and representation."""

import numpy as np
from keras import ops

from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation.clusters import clustering_figures
from keras_capsule_poe.evaluation.neighbours import neighbour_accuracy
from keras_capsule_poe.functions import free_energy, squash

# Feature maps are an order larger than codes, and so are neighbours slower than planes.
FEATURE_IMAGES = 12_000
PROBES = ("capsules", "probabilities", "features", "pixels")


def evaluate(product, data, probe_images=None, test_images=None, seed=0):
    """Figures of a model on its data set; whatever is fitted is fitted on training images.

    Args:
        product: `ProductOfExpertCapsules`.
        data: `ImageData`.
        probe_images: int, training images to learn from; `None`: all. Probes of features and
            nearest neighbours take at most 12,000 of them.
        test_images: int, the first so many test images; `None`: all.
        seed: int, of the choice of images and of the clusterings.

    Returns:
        dict: `reconstruction` (relative squared errors of pixels by the autoencoder, one
        contrastive-divergence step, the whole code and the most probable capsule alone, and of
        the primary capsules by the whole code), `free_energy` (mean of training and test images
        and their gap, nats), `probe` and `neighbours` (accuracy on test images from capsules,
        their probabilities, autoencoder features and pixels) and `clustering`, see
        `clustering_figures`; the last three empty without labels of two classes.
    """
    test = data.test if test_images is None else data.test.head(test_images)
    chosen = np.random.default_rng(seed).permutation(len(data.train))[:probe_images]
    train = map_batches(lambda images: _coded(product, images)[0], data.train.images[chosen])
    held_out = map_batches(lambda images: _coded_and_decoded(product, images), test.images)
    energy, held_out_energy = (float(x["free_energy"].mean()) for x in (train, held_out))
    figures = {
        "reconstruction": {
            name: float(held_out[name].sum() / held_out[f"{of} size"].sum())
            for name, of in _DECODED.items()
        },
        "free_energy": {
            "train": energy,
            "test": held_out_energy,
            "gap": held_out_energy - energy,
        },
        "probe": {},
        "neighbours": {},
        "clustering": {},
    }
    if not has_classes(data):
        return figures
    labels = data.train.labels[chosen]
    figures["clustering"] = clustering_figures(
        _flat(train.pop("experts")),
        labels,
        _flat(held_out.pop("experts")),
        test.labels,
        train["probabilities"],
        held_out["probabilities"],
        seed,
    )
    some = chosen[:FEATURE_IMAGES]
    train["features"] = map_batches(product.autoencoder.encode, data.train.images[some])
    held_out["features"] = map_batches(product.autoencoder.encode, test.images)
    train["pixels"], held_out["pixels"] = (
        to_pixels(data.train.images[chosen]),
        to_pixels(test.images),
    )
    for name in PROBES:
        x, x_test = _flat(train.pop(name)), _flat(held_out.pop(name))
        figures["probe"][name] = linear_probe(x, labels[: len(x)], x_test, test.labels)
        figures["neighbours"][name] = neighbour_accuracy(
            x[: len(some)], labels[: len(some)], x_test, test.labels
        )
    return figures


def has_classes(data):
    """Whether an `ImageData` has labels of two classes or more."""
    return (
        data.train.labels is not None
        and data.test.labels is not None
        and len(np.unique(data.train.labels)) > 1
    )


# What is decoded, and what it is compared with.
_DECODED = {
    "autoencoder": "pixels",
    "divergence_step": "pixels",
    "whole_code": "pixels",
    "one_capsule": "pixels",
    "primary_capsules": "capsules",
}


def _coded(product, images):
    """Codes and free energy of images; and their autoencoder features and primary capsules."""
    features = product.autoencoder.encode(images)
    x = product.primary(features)
    z = product.encoder.experts.route(x).z
    capsules = product.encoder.frames(z)
    coded = {
        "capsules": capsules,
        # Outside their frames, where what is near is alike whichever expert wins.
        "experts": squash(z),
        "probabilities": ops.norm(capsules, axis=-1),
        "free_energy": free_energy(z),
    }
    return coded, features, x


def _coded_and_decoded(product, images):
    """The codes, with the squared errors of what is decoded and what it is of."""
    coded, features, x = _coded(product, images)
    whole = product.render(coded["capsules"])
    alone = product.decode(most_probable(coded["capsules"]))
    return {
        **coded,
        "autoencoder": _squares(product.autoencoder.decode(features) - images),
        "divergence_step": _squares(
            product.from_primary(product.encoder.experts.mean_field_step(x)) - images
        ),
        "whole_code": _squares(whole["images"] - images),
        "one_capsule": _squares(alone["images"] - images),
        "primary_capsules": _squares(whole["primary_capsules"] - x),
        "pixels size": _squares(images),
        "capsules size": _squares(x),
    }


def most_probable(codes):
    """Codes (B, J, E) with all capsules but the most probable one set to zero."""
    winner = ops.argmax(ops.norm(codes, axis=-1), axis=-1)
    return codes * ops.one_hot(winner, codes.shape[1], dtype=codes.dtype)[..., None]


def _squares(difference):
    """Sum of squares of each image, (B,)."""
    return ops.sum(ops.square(ops.reshape(difference, (ops.shape(difference)[0], -1))), axis=-1)


def linear_probe(x_train, y_train, x_test, y_test):
    """Test accuracy of multinomial logistic regression on standardised inputs.

    Args:
        x_train: Array (N, K).
        y_train: Integer array (N,).
        x_test: Array (M, K).
        y_test: Integer array (M,).

    Returns:
        float in [0, 1].
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=100))
    with warnings.catch_warnings():
        # More steps change the last digits of the accuracy and take minutes on many features.
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(np.asarray(x_train, "float32"), y_train)
    return float(probe.score(np.asarray(x_test, "float32"), y_test))


def _flat(array):
    return array.reshape(len(array), -1)
