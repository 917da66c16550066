"""Optimizer, validation and training cost of classifiers."""

import keras

from keras_capsule_poe.errors import in_section
from keras_capsule_poe.families.classifiers.rates import falling
from keras_capsule_poe.families.classifiers.windows import augmentation, fitting_side
from keras_capsule_poe.functions.checks import one_of, real_number
from keras_capsule_poe.training.averages import AveragedAdam, AveragedMuon
from keras_capsule_poe.training.family import Cost
from keras_capsule_poe.training.optimizers import ConvolutionMuon
from keras_capsule_poe.training.schedule import Schedule

BYTES = 4


def schedule(net):
    """Return the training `Schedule` of a section."""
    return Schedule(net.epochs, net.steps, net.batch_size)


def optimizer(net, images):
    """Return Adam or Muon with a learning-rate schedule, and a weight average if set."""
    made = {"adam": (keras.optimizers.Adam, AveragedAdam), "muon": (ConvolutionMuon, AveragedMuon)}
    plain, averaging = made[one_of("optimizer", net.optimizer, net.CHOICES["optimizer"])]
    rate, momentum = falling(net, *schedule(net).over(images)), net.ema_momentum
    if momentum is None:
        return plain(rate, epsilon=1e-8)
    if not 0 <= real_number("ema_momentum", momentum) < 1:
        raise ValueError(f"`ema_momentum` must lie in [0, 1). Received: {momentum}")
    return averaging(rate, epsilon=1e-8, use_ema=True, ema_momentum=momentum)


def check(config, section, build_model, image_shape=None):
    """Build the model to validate a section; raise `ConfigError` that names the section."""
    net = config[section]
    with in_section(section):
        augmentation(net)
        optimizer(net, images=1)
        side = fitting_side(net)
        build_model(config, image_shape or (side, side, 1)).microbatch = net.microbatch
        wanted = net.until_accuracy
        if wanted is not None and not 0 < real_number("until_accuracy", wanted) <= 1:
            raise ValueError(f"`until_accuracy` must lie in (0, 1]. Received: {wanted}")


def cost(net, images, parameters, products, numbers, share):
    """Return the training `Cost`, from the multiplications and activations of one image."""
    epochs, steps = schedule(net).over(images)
    # Weights, gradients, Adam's two moments and, if used, the weight average.
    copies, at_once = 4 + (net.ema_momentum is not None), net.batch_size
    if net.microbatch is not None:
        # Gradient accumulation needs one more copy.
        copies, at_once = copies + 1, min(at_once, net.microbatch)
    return Cost(
        # Two operations in three passes: forward, input gradients and weight gradients.
        flops=6.0 * products * images * epochs,
        share=share,
        epochs=epochs,
        steps=epochs * steps,
        # Parameter copies, and activations with their gradients.
        memory=BYTES * (copies * parameters + 2 * at_once * numbers),
    )
