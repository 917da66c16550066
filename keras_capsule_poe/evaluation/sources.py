"""Sources of images for evaluation: real images, the model, its parts and baselines."""

import numpy as np

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.metrics import (
    FEATURE_IMAGES,
    chosen_images,
    reconstruction_errors,
)


def image_sources(
    model, data, test_images, samples, seed, baselines=None, decoded=None, features=None
):
    """Return functions by name that return images and their capsules, or None for these."""
    chosen = chosen_images(data, seed)
    test = data.test.images[:test_images]
    baselines, upper_bounds = baselines or {}, dict(decoded or {})
    known = [] if features is None else [features]
    from_features = compiled(lambda features: model.from_features(features))

    def upper_bound(name):
        if not upper_bounds:
            upper_bounds.update(reconstruction_errors(model, test, kept=test_images)[1])
        return upper_bounds[name][:test_images], None

    def drawn(mode, domain):
        found = model.sample(samples, seed, mode, domain)
        return found.images, found.index

    def baseline(unfitted):
        if not known:
            rows = data.train.images[chosen[:FEATURE_IMAGES]]
            known.append(map_batches(model.to_features, rows))
        (features,) = known
        fitted = unfitted().fit(features.reshape(len(features), -1))
        # Decode block by block, because all sampled features would need much memory.
        drawn = (block.reshape(-1, *features.shape[1:]) for block in fitted.blocks(samples, seed))
        return np.concatenate([map_batches(from_features, block) for block in drawn]), None

    return {
        "real": lambda: (data.train.images[chosen[:samples]], None),
        **{name: lambda name=name: upper_bound(name) for name in model.upper_bounds},
        **{name: lambda pair=pair: drawn(*pair) for name, pair in draws(model).items()},
        **{name: lambda make=make: baseline(make) for name, make in baselines.items()},
    }


def draws(model):
    """Return {name: (mode, domain)} of all ways to draw, named by domain or else by mode."""
    found = {}
    for mode, about in model.modes.items():
        # The domain nearest to the training data comes first.
        for domain in reversed(about.domains or (None,)):
            name = domain or mode
            found[f"{mode}_{name}" if name in found else name] = (mode, domain)
    return found


def nearest_to_training(model):
    """Return the name of each mode's draws that lie nearest to the training data."""
    first = {}
    for name, (mode, _) in draws(model).items():
        first.setdefault(mode, name)
    return tuple(first.values())
