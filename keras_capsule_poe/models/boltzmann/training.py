"""A restricted Boltzmann machine of images, built from settings, and its training cost."""

import math

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled, one_of, share, whole_number
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.errors import in_section
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.base import feature_building as costs
from keras_capsule_poe.models.base import feature_files as stored
from keras_capsule_poe.models.base.autoencoder import SMALLEST_IMAGE
from keras_capsule_poe.models.base.feature_building import build_autoencoder
from keras_capsule_poe.models.base.feature_building import check as check_features
from keras_capsule_poe.models.base.saved import load_as, save_whole
from keras_capsule_poe.models.boltzmann.images import ImageBoltzmannMachine
from keras_capsule_poe.models.boltzmann.layers import RestrictedBoltzmannMachine
from keras_capsule_poe.models.boltzmann.model import HarmoniumModel
from keras_capsule_poe.plotting import reconstruction_rows, sample_rows
from keras_capsule_poe.training.family import Schedule
from keras_capsule_poe.training.sanity import figures, warn, worse_than_mean


def has_features(config):
    """Return whether the visible units are autoencoder features, which need their stages."""
    return config["rbm"].visible == "features"


def binarize(config):
    """Return the method that turns pixels into binary visible units, or None."""
    return config["rbm"].binarize if visible(config) == "bernoulli" else None


def visible(config):
    """Return the kind of visible units."""
    return "gaussian" if has_features(config) else config["rbm"].neurons


def neurons(config, image_shape):
    """Return the number of visible units for images (H, W, C)."""
    if has_features(config):
        return math.prod(costs.shapes_of(config, image_shape).features)
    return math.prod(image_shape)


def build_model(config, number):
    """Return the `HarmoniumModel` of `number` visible units, built but not compiled."""
    rbm = config["rbm"]
    if not rbm.initial_stddev > 0:
        raise ValueError(
            f"`initial_stddev` must be above zero. Received: initial_stddev={rbm.initial_stddev!r}"
        )
    machine = RestrictedBoltzmannMachine(
        whole_number("hidden", rbm.hidden),
        visible=visible(config),
        centering=rbm.centering,
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=rbm.initial_stddev, seed=config.seed
        ),
        name="machine",
    )
    model = HarmoniumModel(
        machine,
        algorithm=rbm.algorithm,
        cd_steps=rbm.cd_steps,
        persistent_chains=rbm.chains,
        chains_initializer=rbm.chains_initializer,
        temperatures=rbm.temperatures,
        binarize=binarize(config),
        weight_decay=rbm.weight_decay,
        offset_rate=rbm.offset_rate,
        seed=config.seed,
        name="rbm",
    )
    model.build((None, number))
    return model


def build_whole(config, machine, image_shape, autoencoder=None):
    """Return the `ImageBoltzmannMachine` of a machine, with persistent chains of zeros."""
    rbm = config["rbm"]
    model = ImageBoltzmannMachine(
        machine,
        image_shape,
        binarize=binarize(config),
        autoencoder=autoencoder,
        persistent_chains=rbm.chains,
        burn_in=rbm.burn_in,
        name="product",
    )
    model.build()
    return model


def schedule(config):
    """Return the training `Schedule`."""
    rbm = config["rbm"]
    return Schedule(rbm.epochs, rbm.steps, rbm.batch_size)


def optimizer(config, images):
    """Return SGD with a linear learning-rate decay over `images` training images."""
    rbm, (epochs, steps) = config["rbm"], schedule(config).over(images)
    if not 0 <= rbm.momentum < 1:
        raise ValueError(f"`momentum` must lie in [0, 1). Received: momentum={rbm.momentum!r}")
    fraction = share("min_learning_rate_fraction", rbm.min_learning_rate_fraction, or_zero=True)
    falling = keras.optimizers.schedules.PolynomialDecay(
        rbm.learning_rate, epochs * steps, fraction * rbm.learning_rate
    )
    return keras.optimizers.SGD(falling, momentum=rbm.momentum)


def check(config, image_shape=None):
    """Build every part to validate the settings; raise `ConfigError` that names the section."""
    shape = image_shape or (28, 28, 1)
    known = ("pixels", "features")

    def whole(number, autoencoder=None):
        optimizer(config, images=1)
        model = build_model(config, number)
        build_whole(config, model.machine, shape, autoencoder)

    with in_section("rbm"):
        one_of("visible", config["rbm"].visible, known)
        if not has_features(config):
            return whole(math.prod(shape))

    def over_features(primary):
        whole(primary.capsules * primary.dim, build_autoencoder(config, shape))

    later = [("rbm", over_features)]
    check_features(config, image_shape, later)


def smallest(config):
    """Return the minimum height and width of images in pixels, or None."""
    return SMALLEST_IMAGE if has_features(config) else None


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""
    number, hidden = neurons(config, image_shape), config["rbm"].hidden
    shapes, parameters = {"image": tuple(image_shape)}, {}
    if has_features(config):
        model = build_autoencoder(config, image_shape)
        shapes["feature map"] = model.feature_shape
        parameters["autoencoder"] = model.count_params()
    shapes |= {"visible neurons": (number,), "hidden neurons": (hidden,)}
    return shapes, {**parameters, "rbm": number * hidden + number + hidden}


# This import registers the classes with Keras.

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

    model = build_model(config, number)
    whole = build_whole(config, model.machine, data.image_shape, autoencoder)
    some = flat(train[:ADAPTED])
    model.adapt(some > 0.5 if binarize(config) == "threshold" else some)
    # XLA makes a step several times slower on a CPU.
    model.compile(optimizer(config, len(train)), jit_compile=False)
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
        schedule(config),
        after_epoch,
        picture,
    )
    stored.save_model(run, "rbm", model)
    found = worse_than_mean(_as_seen(held_out, config), last["held_out_relative_error"])
    return {**last, **warn(run, "rbm", found)}


def _as_seen(pixels, config):
    """Return pixels (N, V) as in training: binary if the model binarizes them."""
    how = binarize(config)
    if how is None:
        return pixels
    bar = 0.5 if how == "threshold" else np.random.default_rng(0).uniform(size=pixels.shape)
    return pixels > bar


def trained_model(run):
    """Return the model of a run whose machine is trained, with chains in equilibrium."""
    config, trained = run.config, stored.load_model(run, "rbm")
    model = build_whole(config, trained.machine, run.data.image_shape, _autoencoder(run))
    number = config["rbm"].chains
    model.chain_states.assign(compiled(lambda: trained.fantasies(number, SETTLED, config.seed))())
    return model


def export(run):
    """Export the whole model for Keras and as a SavedModel, and draw its images."""
    config, model = run.config, trained_model(run)
    shown = reconstruction_rows(model, run.data.test.images[:SHOWN])
    version = save_whole(run, model)
    save_grid(run.path("reconstructions.png"), list(shown.values()))
    save_grid(run.path("samples.png"), sample_rows(model, ROWS, config.seed))
    return {"saved_model": version}


def _autoencoder(run):
    """Return the trained autoencoder if the visible units are features, else None."""
    if not has_features(run.config):
        return None
    return stored.as_float32(stored.load_model(run, "autoencoder"))


def load(path):
    """Load the `ImageBoltzmannMachine` of a `model.keras`."""
    return load_as(ImageBoltzmannMachine, path)
