"""How many capsules images have: agreement of groups on held-out images, by the number."""

import itertools

import keras
import numpy as np

from keras_capsule_poe.core.arguments import number_given
from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.models.base.clusters import initialize_maps
from keras_capsule_poe.models.base.features import sgd
from keras_capsule_poe.models.capsule_poe.encoder import build_encoder

# Every so many images are held out, and the least number of images for a curve.
HELD_OUT, FEWEST = 4, 40


def capsule_curve(model, images, numbers, steps, seeds):
    """Return the agreement of groups by the number of capsules, see `ProductOfExpertCapsules`."""
    numbers = [number_given("capsules", number, 2) for number in numbers]
    steps, seeds = number_given("steps", steps), number_given("seeds", seeds, 2)
    if len(images) < FEWEST:
        raise BadUse(f"`images` must be {FEWEST} images or more. Received: {len(images)} images")
    x = map_batches(compiled(model.to_visible), images)
    is_new = np.arange(len(x)) % HELD_OUT == HELD_OUT - 1
    return {
        number: _agreement(
            [_groups(model, x[~is_new], x[is_new], number, steps, seed) for seed in range(seeds)]
        )
        for number in numbers
    }


def _groups(model, train, held_out, number, steps, seed):
    """Train an encoder of a number of capsules; return the winners of held-out images."""
    settings = model.settings.model_copy(deep=True)
    settings.seed = seed
    settings.encoder.capsules, settings.encoder.steps = number, steps
    settings.encoder.epochs = None
    encoder = build_encoder(settings, train.shape[1])
    rows = (lambda index: train[index]), len(train), seed
    initialize_maps(encoder.experts, settings.encoder.initializer, *rows)
    encoder.compile(sgd(settings.encoder, len(train)), jit_compile=False)
    epochs, each = settings.encoder.schedule.over(len(train))
    order = {"batch_size": settings.encoder.batch_size, "seed": seed, "epochs": epochs}
    stream = batches(train, first_epoch=0, first_step=0, **order)
    options = {"epochs": epochs, "steps_per_epoch": each, "verbose": 0, "shuffle": False}
    keras.Model.fit(encoder, stream, **options)
    return winners(map_batches(compiled(lambda x: encoder.experts.route(x).z), held_out))


def _agreement(groups):
    """Return the mean adjusted Rand index of all pairs of groupings."""
    from sklearn.metrics import adjusted_rand_score

    pairs = itertools.combinations(groups, 2)
    return round(float(np.mean([adjusted_rand_score(*pair) for pair in pairs])), 4)
