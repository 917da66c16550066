"""A restricted Boltzmann machine of images from its settings, and what it would take."""

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

# Share of the machine's large float32 product rate that a step was seen to reach on two cores.
SHARE = 0.4


def has_features(config):
    """Whether visible neurons are features; the run has the stages that make them then."""
    return config["rbm"].visible == "features"


def binarize(config):
    """How pixels become visible neurons; None where they are these."""
    return config["rbm"].binarize if visible(config) == "bernoulli" else None


def visible(config):
    """The kind of visible neurons."""
    return "gaussian" if has_features(config) else config["rbm"].neurons


def neurons(config, image_shape):
    """How many visible neurons images (H, W, C) have."""
    if has_features(config):
        return math.prod(costs.shapes_of(config, image_shape).features)
    return math.prod(image_shape)


def build_model(config, number):
    """The `HarmoniumModel` of so many visible neurons, built but not compiled."""
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
    """The `ImageBoltzmannMachine` of a machine, its particles still zeros."""
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
    """The `Schedule` of the training."""
    rbm = config["rbm"]
    return Schedule(rbm.epochs, rbm.steps, rbm.batch_size)


def optimizer(config, images):
    """Gradient ascent whose rate falls along a line, for so many training images."""
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
    """Builds every part, so that its constructor says what it cannot be.

    Args:
        config: `RunConfig`.
        image_shape: (H, W, C), or None for one that always fits.

    Raises:
        ConfigError: That names the section.
    """
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
    """The least height and width of images, in pixels, or None."""
    return SMALLEST_IMAGE if has_features(config) else None


def outline(config, image_shape):
    """Shapes and numbers of parameters, two dicts, for people to read."""
    number, hidden = neurons(config, image_shape), config["rbm"].hidden
    shapes, parameters = {"image": tuple(image_shape)}, {}
    if has_features(config):
        model = build_autoencoder(config, image_shape)
        shapes["feature map"] = model.feature_shape
        parameters["autoencoder"] = model.count_params()
    shapes |= {"visible neurons": (number,), "hidden neurons": (hidden,)}
    return shapes, {**parameters, "rbm": number * hidden + number + hidden}


def cost(config, image_shape, images, held_out):
    """The `Cost` of the training."""
    rbm, number = config["rbm"], neurons(config, image_shape)
    epochs, steps = schedule(config).over(images)
    product = 2.0 * number * rbm.hidden
    # Up, and the correlation; and those of the chains, which go up and down.
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
