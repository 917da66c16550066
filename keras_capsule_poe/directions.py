"""Named directions of a capsule: how its codes change height, slant or brightness of an image."""

from typing import Any, NamedTuple

import numpy as np

from keras_capsule_poe.core.arguments import capsule_given
from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.data.arrays import known_images
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.data.preparation import is_dark_on_light
from keras_capsule_poe.errors import BadUse

# Codes that are decoded and measured for each capsule.
DRAWS = 400
# Strength of the ridge, relative to codes of length one.
RIDGE = 0.1
# With fewer codes, a regression says little.
FEWEST = 40
# Directions that explain less are not shown, nor more than so many.
LEAST_R2, MOST = 0.3, 8
# Standard deviations of properties that cannot be seen if they are smaller, as shares of a side.
SMALLEST = {"shift right": 0.015, "shift up": 0.015}
# Ink of this share of the brightest one belongs to the outline.
OUTLINE = 0.25


class Direction(NamedTuple):
    """A direction in the code space of a capsule, along which one property of images changes.

    Attributes:
        name: Property, such as `"height"` or `"slant"`.
        r2: Share of the property's variance that the code explains, by cross-validation.
        vector: Unit vector (E,); along it the property grows.
        deviation: Standard deviation of the capsule's codes along the vector.
    """

    name: str
    r2: float
    vector: np.ndarray
    deviation: float


def properties(images: Any) -> dict[str, np.ndarray]:
    """Measure images.

    Ink is what differs from the background: bright pixels on dark images, dark ones on bright
    images.

    Args:
        images: Array (N, H, W, C), pixels in [0, 1].

    Returns:
        Dict of arrays (N,). `height`, `width` and `area` are shares of the image. `slant` is
        positive for an outline that leans to the right. `shift right` and `shift up` are the
        position of the outline; shades inside do not count.
        Colour images also have `red` and `blue`, more of that colour than of the others.

    Example:

    >>> image = np.zeros((1, 4, 4, 1))
    >>> image[:, 1:3, 1] = 1
    >>> found = properties(image)
    >>> float(found["height"][0]), float(found["width"][0])
    (0.5, 0.25)
    """
    images = np.asarray(images, "float64")
    ink, _ = ink_of(images)
    height, width = ink.shape[1:]
    total = np.maximum(ink.sum(axis=(1, 2)), 1e-9)
    largest = np.maximum(ink.max(axis=(1, 2)), 1e-9)
    outline = np.minimum(ink / (OUTLINE * largest[:, None, None]), 1)
    centre_x, centre_y = centre(outline)
    y, x = np.mgrid[:height, :width]
    down, right = y - centre_y[:, None, None], x - centre_x[:, None, None]
    varies = np.maximum((outline * down**2).sum(axis=(1, 2)), 1e-9)
    brightness = (ink**2).sum(axis=(1, 2)) / total
    edges = np.abs(np.diff(ink, axis=1)).sum(axis=(1, 2)) + np.abs(np.diff(ink)).sum(axis=(1, 2))
    found = {
        "height": ink.max(axis=2).sum(axis=1) / largest / height,
        "width": ink.max(axis=1).sum(axis=1) / largest / width,
        "slant": -(outline * down * right).sum(axis=(1, 2)) / varies,
        "brightness": brightness,
        "area": outline.mean(axis=(1, 2)),
        "contrast": edges / total,
        "symmetry": 1 - np.abs(ink - ink[:, :, ::-1]).sum(axis=(1, 2)) / (2 * total),
        "shift right": centre_x / width,
        "shift up": 1 - centre_y / height,
    }
    if images.shape[-1] == 3:
        others = images.mean(axis=(1, 2, 3))
        found |= {
            name: images[..., k].mean(axis=(1, 2)) - others for name, k in (("red", 0), ("blue", 2))
        }
    return found


def centre(weights):
    """Return the centre (x, y) of weights (N, H, W), two arrays (N,) in pixels."""
    y, x = np.mgrid[: weights.shape[1], : weights.shape[2]]
    total = np.maximum(weights.sum(axis=(1, 2)), 1e-9)
    return tuple((weights * at).sum(axis=(1, 2)) / total for at in (x, y))


def ink_of(images):
    """Return the ink (N, H, W) of images (N, H, W, C) in [0, 1], and whether it is light."""
    grey, is_light = images.mean(axis=-1), not is_dark_on_light(images)
    return grey if is_light else 1 - grey, is_light


def codes_of_capsule(model, capsule, images=None, draws=DRAWS):
    """Return codes (N, E) of one capsule: of its draws, or of the images that it wins."""
    if "single" in getattr(model, "modes", {}):
        domain = (model.modes["single"].domains or (None,))[-1]
        drawn = model.draw_capsule(capsule, draws, 0, domain)["capsules"]
        return np.asarray(drawn)[:, capsule]
    if images is None:
        raise BadUse(
            "`images` must be given for a model that does not draw single capsules: their codes "
            "are used in place of draws. Received: images=None. Hint: give its test images."
        )
    found = map_batches(model.encode, known_images(images, model).images)
    won = winners(found["probabilities"]) == capsule
    return found["capsules"][won, capsule][:draws]


def alone(codes, capsules, capsule):
    """Return whole codes (N, J, E) in which one capsule has codes (N, E), and all others zero."""
    whole = np.zeros((len(codes), capsules, codes.shape[1]), "float32")
    whole[:, capsule] = codes
    return whole


def with_length(codes, length):
    """Return codes (N, E) of one length."""
    return codes * (length / np.maximum(np.linalg.norm(codes, axis=1, keepdims=True), 1e-12))


def directions(model: Any, capsule: int, images: Any = None) -> list[Direction]:
    """Find the directions of a capsule's codes along which properties of its images change.

    Codes of the capsule are drawn and decoded, all other capsules zero. Ridge regression of each
    property of the images on the code gives its direction.

    Args:
        model: Model with capsules that can be decoded.
        capsule: Index of a capsule, from 0.
        images: For models that draw no single capsules, such as classifiers: images whose codes
            replace draws. An array (N, H, W, C) or (N, H, W), what `load_images` returns, or its
            `test`.

    Returns:
        List of `Direction`, the best explained property first. It is empty if the capsule has too
        few codes, or if its dimension is below two.

    Raises:
        BadUse: If the capsule does not exist, or a classifier is given without images.

    Example:

    >>> import keras_capsule_poe as kcp
    >>> found = directions(kcp.load("mnist"), capsule=3)
    >>> found[0].r2 > 0.7
    True
    """
    capsule = capsule_given(capsule, model.capsules)
    return directions_of(model, capsule, codes_of_capsule(model, capsule, images))


def directions_of(model, capsule, codes):
    """Return the `directions` of a capsule with codes (N, E)."""
    if len(codes) < FEWEST or codes.shape[1] < 2:
        return []
    if model.CODES == "ball":
        # Sliders turn a code and keep its length.
        codes = with_length(codes, np.linalg.norm(codes, axis=1).mean())
    return fitted(codes, properties(decoded(model, alone(codes, model.capsules, capsule))))


def shown_directions(model, capsule, codes):
    """Return those `directions` that a page or a figure shows: sliders, or rows."""
    found = directions_of(model, capsule, codes)
    return [each for each in found if each.r2 >= LEAST_R2][:MOST]


def decoded(model, codes):
    """Return the images (N, H, W, C) of whole codes (N, J, E)."""
    if hasattr(model, "decode"):
        # Its graph is kept from one call to the next.
        return model.decode(codes).images
    return map_batches(lambda x: model.render(x)["images"], codes)


def fitted(codes, measured):
    """Return the `Direction` of each property (N,) in a dict, by ridge regression on codes."""
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import cross_val_predict

    centred, found = codes - codes.mean(axis=0), []
    ridge = Ridge(RIDGE * np.square(centred).sum(axis=1).mean())
    for name, values in measured.items():
        spread = values.std()
        if not spread > SMALLEST.get(name, 1e-9):
            continue
        y = (values - values.mean()) / spread
        left = y - cross_val_predict(ridge, centred, y, cv=5)
        slope = ridge.fit(centred, y).coef_
        vector = slope / max(np.linalg.norm(slope), 1e-12)
        r2 = max(0.0, 1 - float(np.square(left).mean()))
        found.append(Direction(name, r2, vector.astype("float32"), float((centred @ vector).std())))
    return sorted(found, key=lambda each: -each.r2)


def effects(model, code, capsule, deviations):
    """Return the mean change of pixels (E,) by a move of one deviation along each dimension.

    Args:
        model: Model with capsules that can be decoded.
        code: Array (J, E).
        capsule: Index of the capsule that moves.
        deviations: Array (E,).
    """
    half = np.diag(deviations) / 2
    own = code[capsule] + np.concatenate([-half, half])
    if model.CODES == "ball" and len(deviations) > 1:
        own = with_length(own, np.linalg.norm(code[capsule]))
    codes = np.repeat(np.asarray(code, "float32")[None], len(own), axis=0)
    codes[:, capsule] = np.clip(own, 0, 1) if model.CODES == "cube" else own
    low, high = np.split(decoded(model, codes), 2)
    return np.abs(high - low).mean(axis=(1, 2, 3))
