"""Images composed of others on the fly, reproducible from the seed and the epoch."""

import abc
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable

import numpy as np

from keras_capsule_poe.data.augmentation import affine_matrix, place, warp
from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.streams import generator
from keras_capsule_poe.errors import DataError, first_line
from keras_capsule_poe.io.atomic import user_path


class Composition(abc.ABC):
    """Seeded composition of images from others, on a canvas with a margin of `pad` pixels."""

    # Called once per epoch (`draw`) and once per batch (`compose`); batching must not matter.
    pad = 0
    needs_classes = False

    def shape(self, image_shape):
        """Return the shape of images composed from images of shape (H, W, C)."""
        height, width, channels = image_shape
        return height + 2 * self.pad, width + 2 * self.pad, channels

    @abc.abstractmethod
    def draw(self, n, labels, rng):
        """Draw the random numbers of `n` images, a dict of arrays (n, ...)."""

    @abc.abstractmethod
    def compose(self, images, labels, index, drawn):
        """Return `images`, any `labels` and extras (B, ...) of the images at `index`."""

    def __call__(self, images, labels, rng):
        """Compose all of `images`."""
        drawn = self.draw(len(images), labels, rng)
        return self.compose(images, labels, np.arange(len(images)), drawn)


def _one_label(labels, index):
    """Return the labels at `index` as a dict, empty without labels."""
    return {} if labels is None else {"labels": labels[index]}


@dataclasses.dataclass(frozen=True)
class Translated(Composition):
    """Each image on a dark canvas, shifted uniformly (Sabour et al., 2017, Section 5.2)."""

    # Pixels: canvas margin on each side, and largest shift along each axis.
    pad: int = 6
    shift: int = 6

    def draw(self, n, labels, rng):
        return {"shifts": rng.integers(-self.shift, self.shift + 1, (n, 2))}

    def compose(self, images, labels, index, drawn):
        """Return `images`, `labels` and `shifts` (B, 2) int64, down and to the right."""
        shifts = drawn["shifts"][index]
        moved = self._moved(images, index, shifts)
        return {"images": moved, **_one_label(labels, index), "shifts": shifts}

    def _moved(self, images, index, shifts):
        size = self.shape(images.shape[1:])[:2]
        return place(images[index], size, *(shifts + self.pad).T)


def draw_partners(labels, rng):
    """Draw indices (N,) of a partner for each image, uniform over the other classes."""
    order = np.argsort(labels, kind="stable")
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    # Position in the order of the classes, without the image's own class.
    chosen = rng.integers(0, len(labels) - counts[classes])
    chosen += (chosen >= firsts[classes]) * counts[classes]
    return order[chosen]


@dataclasses.dataclass(frozen=True)
class Overlapping(Translated):
    """Two images of different classes, shifted and added with clipping at 255: MultiMNIST."""

    # Sabour et al. (2017), Section 6. Their code shifts by 6 at a pad of 4, their text by 4.
    # They keep one shift for all pairs of an image; here each pair draws both shifts.
    pad: int = 4
    shift: int = 4
    needs_classes = True

    def draw(self, n, labels, rng):
        one = super().draw(n, labels, rng)["shifts"]
        other = super().draw(n, labels, rng)["shifts"]
        return {"partners": draw_partners(labels, rng), "shifts": one, "partner_shifts": other}

    def compose(self, images, labels, index, drawn):
        """Return `images`, `labels` (B, 2) and `targets` (B, 2, H', W', C), each image alone."""
        partners = drawn["partners"][index]
        one = self._moved(images, index, drawn["shifts"][index])
        other = self._moved(images, partners, drawn["partner_shifts"][index])
        # min(a + b, 255) without uint8 overflow.
        return {
            "images": one + np.minimum(other, 255 - one),
            "labels": np.stack([labels[index], labels[partners]], axis=1),
            "targets": np.stack([one, other], axis=1),
        }


@dataclasses.dataclass(frozen=True)
class SideBySide(Composition):
    """Two images of different classes, left and right."""

    needs_classes = True

    def shape(self, image_shape):
        height, width, channels = image_shape
        return height, 2 * width, channels

    def draw(self, n, labels, rng):
        return {"partners": draw_partners(labels, rng)}

    def compose(self, images, labels, index, drawn):
        """Return `images` and `labels` (B, 2), from left to right."""
        both = np.stack([index, drawn["partners"][index]], axis=1)
        return {
            "images": np.concatenate([images[both[:, 0]], images[both[:, 1]]], axis=2),
            "labels": labels[both],
        }


@dataclasses.dataclass(frozen=True)
class Affine(Composition):
    """Random affine map of each image on a dark canvas that keeps all ink, like affNIST."""

    # Uniform ranges like affNIST's (https://www.cs.toronto.edu/~tijmen/affNIST/) as far as known:
    # pixels per side, degrees, columns per row, and distance of both factors from 1.
    pad: int = 6
    rotation: float = 20.0
    shear: float = 0.2
    scale: float = 0.2

    def draw(self, n, labels, rng):
        return {
            "rotation": rng.uniform(-self.rotation, self.rotation, n),
            "shear": rng.uniform(-self.shear, self.shear, n),
            "scale": rng.uniform(1 - self.scale, 1 + self.scale, (n, 2)),
            # Position within `translation_range`.
            "place": rng.random((n, 2)),
        }

    def compose(self, images, labels, index, drawn):
        """Return `images`, `labels` and `affine` (B, 6) float32.

        The columns of `affine` are degrees counter-clockwise, columns to the right per row up, the
        vertical and horizontal factor, and the translation down and to the right in pixels.
        """
        images = images[index]
        rotation, shear, scale = (drawn[name][index] for name in ("rotation", "shear", "scale"))
        matrices = affine_matrix(rotation, shear, scale)
        size = self.shape(images.shape[1:])[:2]
        low, high = translation_range(images, matrices, size)
        # Ink larger than the canvas has low > high; it is centred and cut off.
        translations = np.where(
            low < high, low + drawn["place"][index] * (high - low), (low + high) / 2
        )
        warped = warp(images, matrices, translations, size)
        columns = rotation[:, None], shear[:, None], scale, translations
        return {
            "images": np.rint(warped).astype(np.uint8),
            **_one_label(labels, index),
            "affine": np.concatenate(columns, axis=1).astype(np.float32),
        }


def translation_range(images, matrices, size):
    """Return the least and largest translations (B, 2) in pixels that keep all ink."""
    ink = images.any(axis=-1)
    _, height, width = ink.shape
    # An image without ink counts as one pixel in the middle.
    ink[~ink.any(axis=(1, 2)), height // 2, width // 2] = True
    down, right = (np.arange(length) - (length - 1) / 2 for length in (height, width))
    lows, highs = [], []
    for axis in range(2):
        row, column = matrices[:, axis, 0, None, None], matrices[:, axis, 1, None, None]
        points = row * down[:, None] + column * right
        least = np.where(ink, points, np.inf).min(axis=(1, 2))
        most = np.where(ink, points, -np.inf).max(axis=(1, 2))
        # Bilinear interpolation spreads a pixel by one pixel in each direction before the map.
        reach = np.abs(matrices[:, axis]).sum(axis=-1)
        half = (size[axis] + 1) / 2
        lows.append(reach - half - least)
        highs.append(half - reach - most)
    return np.stack(lows, axis=1), np.stack(highs, axis=1)


_COMPOSING = 1
_CHUNK = 256


@dataclasses.dataclass(frozen=True, eq=False)
class ComposedSet:
    """Images composed anew every epoch, as many as the base has.

    Training calls `epoch`. For code that expects an `ImageSet`, the attributes `images`, `labels`
    and `extras` are those of `fixed()`, composed at first use.

    Attributes:
        base: `ImageSet`, the originals.
        composition: `Composition`, for example `Overlapping()`.
        name: str, describes the source.

    Raises:
        DataError: If the composition needs images of two classes and there are none.

    Examples:

    >>> from keras_capsule_poe.data import load_images
    >>> from keras_capsule_poe.data.composed import Overlapping
    >>> pairs = ComposedSet(load_images("digits", limit=100).train, Overlapping())
    >>> pairs.image_shape, pairs.labels.shape
    ((36, 36, 1), (100, 2))
    >>> rows = pairs.epoch(seed=0, epoch=3)(np.arange(8))
    >>> rows["targets"].shape
    (8, 2, 36, 36, 1)
    """

    base: ImageSet
    composition: Composition
    name: str = "composed"

    def __post_init__(self):
        if not self.composition.needs_classes:
            return
        labels = self.base.labels
        classes = 0 if labels is None or labels.ndim > 1 else len(np.unique(labels))
        if classes < 2:
            raise DataError(
                f"{self.name} needs images of at least 2 classes, one label an image. "
                f"Received: {len(self.base)} images of {classes} classes."
            )

    def __len__(self):
        return len(self.base)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (H, W, C) of one composed image."""
        return self.composition.shape(self.base.image_shape)

    @property
    def class_names(self):
        """Tuple of str, or `None`."""
        return self.base.class_names

    @property
    def nbytes(self):
        """Memory used by the originals in bytes."""
        return self.base.nbytes

    @functools.cached_property
    def fingerprint(self):
        """Hash of the composition and the originals' pixels."""
        words = f"{self.composition!r} {self.base.fingerprint}"
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    @property
    def label_fingerprint(self):
        """Hash of the originals' labels, or `None`, see `ImageSet`."""
        return self.base.label_fingerprint

    def epoch(self, seed: int, epoch: int) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """Return the images of an epoch.

        Args:
            seed: non-negative int.
            epoch: non-negative int.

        Returns:
            Function of an int64 array (B,) of image indices. It returns a dict of arrays (B, ...):
            `images`, `labels` if known, and extras. An image does not depend on the other indices.
        """
        images, labels = self.base.images, self.base.labels
        drawn = self.composition.draw(len(self), labels, generator(seed, epoch, 0, _COMPOSING))
        return functools.partial(self.composition.compose, images, labels, drawn=drawn)

    def fixed(self, seed: int = 0, copies: int = 1, extras: bool = True) -> ImageSet:
        """Compose the first `copies` epochs and join them.

        Args:
            seed: non-negative int.
            copies: positive int.
            extras: bool; if False, only images and labels are kept.

        Returns:
            `ImageSet` of `copies * len(self)` images.
        """
        n, whole = len(self), {}
        for epoch in range(copies):
            rows = self.epoch(seed, epoch)
            for start in range(0, n, _CHUNK):
                part = rows(np.arange(start, min(start + _CHUNK, n)))
                for name in part if extras else {"images", "labels"} & part.keys():
                    array = part[name]
                    if name not in whole:
                        whole[name] = np.empty((copies * n, *array.shape[1:]), array.dtype)
                    first = epoch * n + start
                    whole[name][first : first + len(array)] = array
        images, labels = whole.pop("images"), whole.pop("labels", None)
        return ImageSet(images, labels, self.class_names, self.name, whole)

    @functools.cached_property
    def _fixed(self):
        return self.fixed(extras=False)

    @property
    def images(self):
        """uint8 array (N, H, W, C) of `fixed()`."""
        return self._fixed.images

    @property
    def labels(self):
        """int64 array (N,) or (N, K) of `fixed()`, or `None`."""
        return self._fixed.labels

    @property
    def extras(self):
        """Dict of the extra arrays of `fixed()`."""
        return self.fixed().extras

    def head(self, n):
        """Return the first `n` images of `fixed()` as an `ImageSet`."""
        return self.fixed().head(n)

    def split(self, n):
        """Compose sets of the first `n` originals and, as a fixed `ImageSet`, of the others."""
        first, rest = self.base.split(n)
        return dataclasses.replace(self, base=first), dataclasses.replace(self, base=rest).fixed()


# Compositions for training and testing (Sabour et al., 2017), by suffix.
KINDS = {
    "multi": (Overlapping, Overlapping),
    "translated": (Translated, Translated),
    "affine": (Translated, Affine),
}
ALIASES = {"multimnist": "mnist_multi", "affnist": "mnist_affine"}


@dataclasses.dataclass(frozen=True)
class Composed:
    """Parsed name of a composed data set."""

    name: str
    base: str
    kind: str
    # Largest shift in pixels (None: the composition's default), and test images per original.
    shift: int | None = None
    copies: int = 1


def find_composed(name):
    """Parse `NAME[/SETTING=NUMBER,...]`; return `None` for names of another form."""
    plain, slash, settings = name.partition("/")
    match = re.fullmatch(rf"(\w+)_({'|'.join(KINDS)})", ALIASES.get(plain, plain))
    if not match:
        return None
    known = {}
    for setting in settings.split(",") if slash else ():
        word = re.fullmatch(r"(shift|copies)=(\d{1,4})", setting)
        if not word or word[1] in known or (word[1] == "copies" and not int(word[2])):
            raise DataError(
                f"a composed data set is {plain}, or {plain}/SETTING=NUMBER with the settings "
                f"shift and copies (at least 1). Received: {name!r}."
            )
        known[word[1]] = int(word[2])
    return Composed(name, *match.groups(), **known)


def load_composed(composed, load, options):
    """Load composed training images and fixed composed test images as `ImageData`."""
    refused = ("column", "image_size", "skip_broken", "groups")
    options.refuse("a data set that is composed of another", *refused)
    real = None
    affnist = ALIASES["affnist"] == f"{composed.base}_{composed.kind}"
    if affnist and options.manual_dir is not None:
        # Before the base is loaded, so that a wrong folder fails early.
        real = read_affnist(options.manual_dir)
    base = load(composed.base, options)
    train, test = (kind() for kind in KINDS[composed.kind])
    if composed.shift is not None:
        train = dataclasses.replace(train, shift=composed.shift)
        test = test if isinstance(test, Affine) else train
    trained = ComposedSet(base.train, train, composed.name)
    if real is not None:
        return ImageData(trained, real)
    # Fixed seed, so that test metrics of different training seeds are comparable.
    name = "affNIST-like" if affnist else composed.name
    tested = ComposedSet(base.test, test, name).fixed(seed=0, copies=composed.copies)
    return ImageData(trained, tested, base.skipped)


SIDE = 40
FIELDS = ("image", "label_int", "human_readable_transform")


def read_affnist(folder):
    """Read a folder's `test.mat`, else its batches `1.mat`, `2.mat`, ..., as an `ImageSet`."""
    folder = user_path(folder)
    numbered = [path for path in folder.glob("*.mat") if re.fullmatch(r"\d+", path.stem)]
    files = [folder / "test.mat"] if (folder / "test.mat").is_file() else numbered
    if not files:
        raise DataError(
            f"`manual_dir` holds no affNIST: neither test.mat nor 1.mat, 2.mat and so on; leave "
            f"it out for images like them, made of MNIST. Received: {folder}.",
            hint="leave_out:manual_dir",
        )
    parts = [_read(path) for path in sorted(files, key=lambda path: (len(path.stem), path.stem))]
    images, labels, affine = map(np.concatenate, zip(*parts))
    return ImageSet(images, labels, tuple("0123456789"), "affNIST", {"affine": affine})


def _read(path):
    """Read images (N, 40, 40, 1), labels (N,) and transformations (N, 6) of one file."""
    from scipy.io import loadmat

    try:
        # Invalid and truncated files raise many kinds of errors.
        data = loadmat(path, variable_names=["affNISTdata"])["affNISTdata"]
        images, labels, affine = (np.asarray(data[name][0, 0]) for name in FIELDS)
        n = labels.size
        sound = images.shape == (SIDE * SIDE, n) and images.dtype == np.uint8
        sound = sound and affine.shape == (6, n) and n > 0
        received = f"images {images.shape} {images.dtype}, labels {labels.shape}"
    except Exception as error:
        sound, received = False, first_line(error)
    if not sound:
        raise DataError(
            f"{path} must be a file of affNIST: a struct affNISTdata with {', '.join(FIELDS)} of "
            f"1600, 1 and 6 rows; download it again. Received: {received}."
        )
    # Each column is an image in row-major order.
    pixels = np.ascontiguousarray(images.T).reshape(n, SIDE, SIDE, 1)
    return pixels, labels.ravel().astype(np.int64), affine.T.astype(np.float32)
