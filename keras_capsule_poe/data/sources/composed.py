"""Data sets composed of another, selected by their name."""

import dataclasses
import re

from keras_capsule_poe.data.composed.affine import Affine
from keras_capsule_poe.data.composed.composed_set import ComposedSet
from keras_capsule_poe.data.composed.pairs import Overlapping
from keras_capsule_poe.data.composed.translated import Translated
from keras_capsule_poe.data.image_set import ImageData
from keras_capsule_poe.data.sources.affnist import read_affnist
from keras_capsule_poe.errors import DataError

# Compositions for training and testing (Sabour et al., 2017), by suffix.
KINDS = {
    "multi": (Overlapping, Overlapping),
    "translated": (Translated, Translated),
    "affine": (Translated, Affine),
}
ALIASES = {"multimnist": "mnist_multi", "affnist": "mnist_affine"}
SETTINGS = ("shift", "copies")


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
        word = re.fullmatch(rf"({'|'.join(SETTINGS)})=(\d{{1,4}})", setting)
        if not word or word[1] in known or (word[1] == "copies" and not int(word[2])):
            raise DataError(
                f"a composed data set is {plain}, or {plain}/SETTING=NUMBER with the settings "
                f"{' and '.join(SETTINGS)} (at least 1). Received: {name!r}."
            )
        known[word[1]] = int(word[2])
    return Composed(name, *match.groups(), **known)


def load_composed(composed, load, options):
    """Load composed training images and fixed composed test images as `ImageData`."""
    options.refuse("a data set that is composed of another", "column", "image_size", "skip_broken")
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
