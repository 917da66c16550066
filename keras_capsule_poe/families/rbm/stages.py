"""Training and export of a restricted Boltzmann machine.

A stage takes a `Run`, writes files and returns metrics.
"""

import math

import keras
import numpy as np

from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.families.features import stored
from keras_capsule_poe.families.rbm import build
from keras_capsule_poe.families.saved import load_as, save_whole
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.generation.grids import reconstruction_rows, sample_rows
from keras_capsule_poe.io.pictures import save_grid

# This import registers the classes with Keras.
from keras_capsule_poe.models import ImageBoltzmannMachine
from keras_capsule_poe.training.figures import figures
from keras_capsule_poe.training.soundness import complain, worse_than_mean

# Images for the initial biases, and Gibbs steps for the chains to reach equilibrium.
ADAPTED, SETTLED = 6000, 1000
SHOWN, ROWS = 12, 4


def rbm(run):
    """Train the machine by contrastive divergence."""
    config, data = run.config, run.data
    autoencoder = _autoencoder(run)
    if autoencoder is None:
        train, new = data.train.images, data.held_out.images
    else:
        train, new = (stored.features(run, part) for part in ("train", "held_out"))
    number = math.prod(train.shape[1:])

    def flat(rows):
        return to_pixels(rows).reshape(len(rows), number)

    model = build.build_model(config, number)
    whole = build.build_whole(config, model.machine, data.image_shape, autoencoder)
    some = flat(train[:ADAPTED])
    model.adapt(some > 0.5 if build.binarize(config) == "threshold" else some)
    # XLA makes a step several times slower on a CPU.
    model.compile(build.optimizer(config, len(train)), jit_compile=False)
    seen, held_out = flat(train[: len(new)]), flat(new)

    def after_epoch():
        known, new = (figures(model, x, len(held_out)) for x in (seen, held_out))
        return {
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
        }

    def picture(path):
        shown = held_out[:SHOWN]
        rows = [shown, model.machine.reconstruct(shown), model.fantasies(SHOWN, steps=1)]
        save_grid(path, [keras.ops.convert_to_numpy(whole.from_visible(row)) for row in rows])

    last = run.fit(
        "rbm",
        model,
        lambda **order: batches(train, **order).map(lambda x: keras.ops.reshape(x, (-1, number))),
        build.schedule(config),
        after_epoch,
        picture,
    )
    stored.save_model(run, "rbm", model)
    found = worse_than_mean(_as_seen(held_out, config), last["held_out_relative_error"])
    return {**last, **complain(run, "rbm", found)}


def _as_seen(pixels, config):
    """Return pixels (N, V) as in training: binary if the model binarizes them."""
    how = build.binarize(config)
    if how is None:
        return pixels
    bar = 0.5 if how == "threshold" else np.random.default_rng(0).uniform(size=pixels.shape)
    return pixels > bar


def export(run):
    """Export the whole model for Keras and as a SavedModel, and draw its images."""
    config = run.config
    trained = stored.load_model(run, "rbm")
    shape = run.data.image_shape
    model = build.build_whole(config, trained.machine, shape, _autoencoder(run))
    number = config["rbm"].chains
    model.particles.assign(compiled(lambda: trained.fantasies(number, SETTLED, config.seed))())
    shown = reconstruction_rows(model, run.data.test.images[:SHOWN])
    version = save_whole(run, model)
    save_grid(run.path("reconstructions.png"), list(shown.values()))
    save_grid(run.path("samples.png"), sample_rows(model, ROWS, config.seed))
    return {"saved_model": version}


def _autoencoder(run):
    """Return the trained autoencoder if the visible units are features, else None."""
    if not build.has_features(run.config):
        return None
    return stored.as_float32(stored.load_model(run, "autoencoder"))


def load(path):
    """Load the `ImageBoltzmannMachine` of a `model.keras`."""
    return load_as(ImageBoltzmannMachine, path)
