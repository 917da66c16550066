"""What classifiers see of images: windows, and how training images are changed."""

import functools

import keras

from keras_capsule_poe.data.augmentation import cifar, flip, norb, shift
from keras_capsule_poe.data.digit_augmentation import efficient
from keras_capsule_poe.functions.checks import one_of, whole_number

# Windows that a training image is cut to, at a random place, and a test image in its middle:
# the function, its size, and the size of images that it is for.
WINDOWS = {"cifar": (cifar, 24, None), "norb": (norb, 32, 48)}


def view_of(net, image_shape):
    """The window of images that a network sees, a layer; or None: all.

    Args:
        net: Section of settings with `augmentation`.
        image_shape: (H, W, C).

    Raises:
        ValueError: If images have another size than the window is for.
    """
    if net.augmentation not in WINDOWS:
        return None
    _, size, whole = WINDOWS[net.augmentation]
    height, width = image_shape[:2]
    if min(height, width) < size or (whole and (height, width) != (whole, whole)):
        wanted = f"{whole}x{whole}" if whole else f"at least {size}x{size}"
        raise ValueError(
            f"`augmentation` {net.augmentation!r} is for images of {wanted} pixels; `image_size` "
            f"resizes them. Received: {height}x{width}"
        )
    return keras.layers.CenterCrop(size, size, data_format="channels_last", dtype="float32")


def seen_shape(view, image_shape):
    """The shape of what the network sees of an image."""
    return image_shape if view is None else (view.height, view.width, image_shape[2])


def augmentation(net):
    """What happens to images that are trained on: a function for `data.stream`, or None.

    Args:
        net: Section of settings with `augmentation` and `shift`, in pixels.

    Raises:
        ValueError: If there is no such augmentation.
    """
    kind = one_of("augmentation", net.augmentation, net.CHOICES["augmentation"])
    if kind in WINDOWS:
        return functools.partial(_window, WINDOWS[kind][0])
    moved = functools.partial(shift, most=whole_number("shift", net.shift, least=0))
    return {"none": None, "shift": moved, "efficient": efficient, "flip": flip}[kind]


def _window(change, images, random):
    """As the network takes pixels, which standardises them: 255 grey levels are 1."""
    return change(images, random, standardized=False) / 255


def smallest(net, least=0):
    """The least height and width of images, in pixels; None: any."""
    _, window, whole = WINDOWS.get(net.augmentation, (None, 0, 0))
    return max(least, whole or window) or None


def fitting_side(net):
    """Height and width of images that always fit."""
    return 48 if net.augmentation in WINDOWS else 28
