"""The SavedModel that any TensorFlow program can load without this package."""

import functools
import platform
from importlib import metadata
from pathlib import Path

import tensorflow as tf

from keras_capsule_poe.io.files import beside, write_json
from keras_capsule_poe.models.generative import Endpoints

PACKAGES = ("keras-capsule-poe", "tensorflow", "keras", "numpy", "tensorflow-datasets")
CARD = "model_card.json"


def export_saved_model(product, folder, config, metrics, domain="complete"):
    """Writes `folder/VERSION`, the next free number, whole or not at all.

    Endpoints, all with dict results and a dynamic batch: `encode(images)`,
    `decode(capsules)`, `reconstruct(images)`, `sample(n, seed)`,
    `sample_capsule(capsule, n, seed)`, `sample_joint(n, seed)` and `free_energy(images)`; images are float32 in [0, 1].

    Args:
        product: Built `ProductOfExpertCapsules`.
        folder: Where versions lie.
        config: dict, stored in the model card.
        metrics: dict, stored in the model card.
        domain: The domain that `sample` and `sample_capsule` draw from.

    Returns:
        Path of the version.

    Raises:
        RunFailed: If it cannot be written.
    """
    folder = Path(folder)
    taken = [int(entry.name) for entry in folder.glob("*") if entry.name.isdigit()]
    version = folder / str(max(taken, default=0) + 1)
    module = _Exported(product, domain)
    with beside(version) as temporary:
        tf.saved_model.save(module, str(temporary), signatures=module.signatures())
        write_json(temporary / CARD, model_card(product, config, metrics, domain))
    return version


def model_card(product, config, metrics, domain):
    """What a reader of the model should know, as a dict."""
    return {
        "model": "product of expert capsules (arXiv 1907.11643)",
        "image_shape": list(product.autoencoder.image_shape),
        "primary_capsules": [product.primary.capsules, product.primary.dim],
        "capsules": [product.capsules, product.dim],
        "sample_domain": domain,
        "config": config,
        "data": config.get("dataset"),
        "seed": config.get("seed"),
        "metrics": metrics,
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


def newest_version(folder):
    """Path of the newest SavedModel in a model folder, or None."""
    versions = [int(entry.name) for entry in Path(folder).glob("*") if entry.name.isdigit()]
    return Path(folder) / str(max(versions)) if versions else None


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class _Exported(Endpoints, tf.Module):
    """The product's endpoints as functions of TensorFlow alone."""

    NAMES = (
        "encode",
        "decode",
        "reconstruct",
        "free_energy",
        "sample",
        "sample_capsule",
        "sample_joint",
    )

    def __init__(self, product, domain):
        super().__init__()
        # Variables only: the loaded object then has no class but TensorFlow's own.
        self.model_variables = [variable.value for variable in product.variables]
        self.capsules, self.dim, self.draw = product.capsules, product.dim, product.draw
        self.joint_rank, self.draw_joint = product.joint_rank, product.draw_joint
        images = tf.TensorSpec((None, *product.autoencoder.image_shape), tf.float32, "images")
        capsules = tf.TensorSpec((None, product.capsules, product.dim), tf.float32, "capsules")
        n, seed, capsule = (tf.TensorSpec((), tf.int32, name) for name in ("n", "seed", "capsule"))
        # Traced once and called by the endpoints: routing makes a large graph.
        self.code = tf.function(product.code, input_signature=[images])
        self.render = tf.function(product.render, input_signature=[capsules])
        signatures = (
            [images],
            [capsules],
            [images],
            [images],
            [n, seed],
            [capsule, n, seed],
            [n, seed],
        )
        for name, signature in zip(self.NAMES, signatures):
            options = {"domain": domain} if name in ("sample", "sample_capsule") else {}
            endpoint = functools.partial(getattr(self, name), **options)
            setattr(self, name, tf.function(endpoint, input_signature=signature))

    def signatures(self):
        return {name: getattr(self, name) for name in self.NAMES}
