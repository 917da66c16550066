"""How a classifier is trained, by its settings, and what that takes."""

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
    """The `Schedule` of a section's training."""
    return Schedule(net.epochs, net.steps, net.batch_size)


def optimizer(net, images):
    """Adam, or `ConvolutionMuon`, with a falling rate, for so many training images.

    With `ema_momentum` it keeps an average of the weights, see `averaged`.

    Raises:
        ValueError: If a setting is not in range.
    """
    made = {"adam": (keras.optimizers.Adam, AveragedAdam), "muon": (ConvolutionMuon, AveragedMuon)}
    plain, averaging = made[one_of("optimizer", net.optimizer, net.CHOICES["optimizer"])]
    rate, momentum = falling(net, *schedule(net).over(images)), net.ema_momentum
    if momentum is None:
        return plain(rate, epsilon=1e-8)
    if not 0 <= real_number("ema_momentum", momentum) < 1:
        raise ValueError(f"`ema_momentum` must lie in [0, 1). Received: {momentum}")
    return averaging(rate, epsilon=1e-8, use_ema=True, ema_momentum=momentum)


def check(config, section, build_model, image_shape=None):
    """Builds every part, so that its constructor says what it cannot be.

    Args:
        config: `RunConfig`.
        section: str, the section of the settings.
        build_model: Function of `config` and the shape of an image.
        image_shape: (H, W, C), or None for one that always fits.

    Raises:
        ConfigError: That names the section.
    """
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
    """The `Cost` of the training.

    Args:
        net: `ClassifierSection`.
        images: int, those that are trained on.
        parameters: int, of the model.
        products: Multiplications of one image forward.
        numbers: How many numbers the layers give of one image.
        share: Share of the machine's product rate that a step reaches.
    """
    epochs, steps = schedule(net).over(images)
    # Weights, their gradients, Adam's two moments; an average.
    copies, at_once = 4 + (net.ema_momentum is not None), net.batch_size
    if net.microbatch is not None:
        # The sum of the gradients beside those that are added to it.
        copies, at_once = copies + 1, min(at_once, net.microbatch)
    return Cost(
        # Forward, and the gradients in the inputs and in the weights.
        flops=6.0 * products * images * epochs,
        share=share,
        epochs=epochs,
        steps=epochs * steps,
        # What each layer gives and its gradient, too.
        memory=BYTES * (copies * parameters + 2 * at_once * numbers),
    )
