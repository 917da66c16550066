"""Where images to be judged come from: the model, its parts, controls, and reality."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.figures import (
    FEATURE_IMAGES,
    chosen_images,
    reconstruction_errors,
)
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.generation.sampling import sample


def image_sources(
    model, data, test_images, samples, seed, controls=None, decoded=None, features=None
):
    """Sources of images by name; nothing is drawn before it is asked for.

    `real`: training images, the best that samples can be. Then the model's `CEILINGS`, of test
    images; its modes by the names of their domains, the ones nearest to training first, or by
    their own where they have none. The rest are controls, fitted to features of training images and
    decoded as the model's own features are.

    Args:
        model: `GenerativeModel`.
        data: `ImageData`.
        test_images: int, how many test images are reconstructed.
        samples: int, how many images are drawn.
        seed: int.
        controls: dict of functions by name, as of `control_set`; None: no controls.
        decoded: dict of `reconstruction_errors`, of these test images or more, if it is known.
        features: Array (N, ...), those that controls are fitted to, if they are known: of the first
            12,000 of `chosen_images`.

    Returns:
        dict: functions of nothing to images (N, H, W, C) and the capsule of each, or None.
    """
    chosen = chosen_images(data, seed)
    test = data.test.images[:test_images]
    controls, ceilings = controls or {}, dict(decoded or {})
    known = [] if features is None else [features]
    from_features = compiled(lambda features: model.from_features(features))

    def ceiling(name):
        if not ceilings:
            ceilings.update(reconstruction_errors(model, test, kept=test_images)[1])
        return ceilings[name][:test_images], None

    def drawn(mode, domain):
        found = sample(model, samples, seed, mode, domain)
        return found["images"], found.get("capsule")

    def control(unfitted):
        if not known:
            rows = data.train.images[chosen[:FEATURE_IMAGES]]
            known.append(map_batches(model.to_features, rows))
        (features,) = known
        fitted = unfitted().fit(features.reshape(len(features), -1))
        # Decoded as they are drawn: all of them would be as many features again.
        drawn = (block.reshape(-1, *features.shape[1:]) for block in fitted.blocks(samples, seed))
        return np.concatenate([map_batches(from_features, block) for block in drawn]), None

    return {
        "real": lambda: (data.train.images[chosen[:samples]], None),
        **{name: lambda name=name: ceiling(name) for name in model.CEILINGS},
        **{name: lambda pair=pair: drawn(*pair) for name, pair in draws(model).items()},
        **{name: lambda make=make: control(make) for name, make in controls.items()},
    }


def draws(model):
    """The ways in which a model draws, (mode, domain) by name: the domain's, or the mode's.

    Examples:

    >>> from types import SimpleNamespace as Model
    >>> modes = {"single": Model(domains=("complete", "visited")), "joint": Model(domains=())}
    >>> list(draws(Model(MODES=modes)))
    ['visited', 'complete', 'joint']
    """
    found = {}
    for mode, about in model.MODES.items():
        for domain in reversed(about.domains or (None,)):
            name = domain or mode
            found[f"{mode}_{name}" if name in found else name] = (mode, domain)
    return found


def nearest_to_training(model):
    """Names, as of `draws`, of each mode's draws that lie nearest to what training visited.

    Examples:

    >>> from types import SimpleNamespace as Model
    >>> modes = {"single": Model(domains=("complete", "visited")), "joint": Model(domains=())}
    >>> nearest_to_training(Model(MODES=modes))
    ('visited', 'joint')
    """
    first = {}
    for name, (mode, _) in draws(model).items():
        first.setdefault(mode, name)
    return tuple(first.values())
