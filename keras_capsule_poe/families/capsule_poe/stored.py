"""Assembly of a product from the files of its stages."""

from keras_capsule_poe.families.features.stored import as_float32, load_arrays, load_model
from keras_capsule_poe.layers import GaussianMixtures
from keras_capsule_poe.models import ProductOfExpertCapsules

_PARTS = ("weights", "means", "factors")


def assemble(run, primary, decoder):
    """Return a run's product in float32, with the statistics of its training codes."""
    visits = load_arrays(run, "encoder/visited.npz")
    mixtures = [
        GaussianMixtures.of(*(visits[f"{name}_{part}"] for part in _PARTS), name=name)
        for name in ("visited", "joint")
    ]
    product = ProductOfExpertCapsules(
        as_float32(load_model(run, "autoencoder")),
        primary,
        load_model(run, "encoder"),
        decoder,
        *mixtures,
        name="product",
    )
    product.build((None, *product.autoencoder.image_shape))
    product.mean_direction.assign(visits["mean_direction"])
    return product
