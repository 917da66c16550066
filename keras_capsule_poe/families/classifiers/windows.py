"""Image windows and augmentation of classifiers."""

import functools

import keras

from keras_capsule_poe.data.augmentation import cifar, flip, norb, shift
from keras_capsule_poe.data.digit_augmentation import efficient
from keras_capsule_poe.functions.checks import one_of, whole_number

# Crops, random in training and central in evaluation: (function, window size, required image
# size or None).
WINDOWS = {"cifar": (cifar, 24, None), "norb": (norb, 32, 48)}


def view_of(net, image_shape):
    """Return the layer that crops images (H, W, C) to the network's window, or None."""
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
    """Return the shape of the image window that the network receives."""
    return image_shape if view is None else (view.height, view.width, image_shape[2])


def augmentation(net):
    """Return the augmentation function for `data.stream`, or None."""
    kind = one_of("augmentation", net.augmentation, net.CHOICES["augmentation"])
    if kind in WINDOWS:
        return functools.partial(_window, WINDOWS[kind][0])
    moved = functools.partial(shift, most=whole_number("shift", net.shift, least=0))
    return {"none": None, "shift": moved, "efficient": efficient, "flip": flip}[kind]


def _window(change, images, random):
    """Return augmented windows with 255 grey levels as 1; the network standardizes them."""
    return change(images, random, standardized=False) / 255


def smallest(net, least=0):
    """Return the minimum height and width of images in pixels, or None."""
    _, window, whole = WINDOWS.get(net.augmentation, (None, 0, 0))
    return max(least, whole or window) or None


def fitting_side(net):
    """Return an image height and width that the augmentation accepts."""
    return 48 if net.augmentation in WINDOWS else 28
