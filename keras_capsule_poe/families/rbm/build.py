"""A restricted Boltzmann machine of images, built from settings, and its training cost."""

import math

import keras

from keras_capsule_poe.errors import in_section
from keras_capsule_poe.families.features import costs
from keras_capsule_poe.families.features.build import build_autoencoder
from keras_capsule_poe.families.features.build import check as check_features
from keras_capsule_poe.functions.checks import one_of
from keras_capsule_poe.layers import RestrictedBoltzmannMachine
from keras_capsule_poe.models import HarmoniumModel, ImageBoltzmannMachine
from keras_capsule_poe.models.autoencoder import SMALLEST_IMAGE
from keras_capsule_poe.training.family import Cost
from keras_capsule_poe.training.schedule import Schedule

# Fraction of the machine's large float32 product rate that a step reached on two cores.
SHARE = 0.4


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
        rbm.hidden,
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
        steps=rbm.gibbs_steps,
        chains=rbm.chains,
        start=rbm.chains_start,
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
        particles=rbm.chains,
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
    if not 0 <= rbm.final_rate <= 1:
        raise ValueError(f"`final_rate` must lie in [0, 1]. Received: final_rate={rbm.final_rate}")
    falling = keras.optimizers.schedules.PolynomialDecay(
        rbm.learning_rate, epochs * steps, rbm.final_rate * rbm.learning_rate
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


def cost(config, image_shape, images, held_out):
    """Return the `Cost` of the training."""
    rbm, number = config["rbm"], neurons(config, image_shape)
    epochs, steps = schedule(config).over(images)
    product = 2.0 * number * rbm.hidden
    # Data: one product up and one correlation. Chains: also two products per Gibbs step.
    chains = {"cd": rbm.batch_size, "pcd": rbm.chains, "pt": rbm.chains * rbm.temperatures}
    chains = chains[rbm.algorithm]
    step = product * (2 * rbm.batch_size + (1 + 2 * rbm.gibbs_steps) * chains)
    if has_features(config):
        step += rbm.batch_size * costs.recomputed(config, image_shape, images, held_out, SHARE)
    return Cost(
        flops=step * epochs * steps,
        share=SHARE,
        epochs=epochs,
        steps=epochs * steps,
        memory=4 * costs.BYTES * number * (rbm.hidden + 2 * chains),
    )
