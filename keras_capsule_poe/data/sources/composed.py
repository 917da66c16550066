"""Data sets that are composed of another: what their names mean, and how they are loaded."""

import dataclasses
import re

from keras_capsule_poe.data.composed.affine import Affine
from keras_capsule_poe.data.composed.composed_set import ComposedSet
from keras_capsule_poe.data.composed.pairs import Overlapping
from keras_capsule_poe.data.composed.translated import Translated
from keras_capsule_poe.data.image_set import ImageData
from keras_capsule_poe.data.sources.affnist import read_affnist
from keras_capsule_poe.errors import DataError

# What each ending of a name trains on and what it tests with, as S17 has them.
KINDS = {
    "multi": (Overlapping, Overlapping),
    "translated": (Translated, Translated),
    "affine": (Translated, Affine),
}
ALIASES = {"multimnist": "mnist_multi", "affnist": "mnist_affine"}
SETTINGS = ("shift", "copies")


@dataclasses.dataclass(frozen=True)
class Composed:
    """What the name of a composed data set means.

    Attributes:
        name: str, the name itself.
        base: str, the data set whose images it is composed of.
        kind: str, a key of `KINDS`.
        shift: int, pixels that a training image (and each of a pair) moves at most, or `None`:
            as S17 has it.
        copies: int, how many test images are made of each one of the base.
    """

    name: str
    base: str
    kind: str
    shift: int | None = None
    copies: int = 1


def find_composed(name):
    """What `NAME[/SETTING=NUMBER,...]` means, as far as its form says.

    Args:
        name: str, such as `"multimnist"`, `"fashion_mnist_translated"` or
            `"affnist/copies=32"`.

    Returns:
        `Composed`, whose base may not exist, or `None` for a name of another form.

    Raises:
        DataError: if it has settings that there are not.

    Examples:

    >>> found = find_composed("multimnist/shift=6")
    >>> found.base, found.kind, found.shift
    ('mnist', 'multi', 6)
    >>> find_composed("fashion_mnist_affine").base
    'fashion_mnist'
    >>> find_composed("mnist_corrupted") is None
    True
    """
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
    """Images composed anew each epoch to train on, and fixed ones, of test images, to test with.

    Args:
        composed: `Composed`.
        load: function of the name of a data set and `Options` to an `ImageData`.
        options: `Options`.
    """
    options.refuse("a data set that is composed of another", "column", "image_size", "skip_broken")
    real = None
    affnist = ALIASES["affnist"] == f"{composed.base}_{composed.kind}"
    if affnist and options.manual_dir is not None:
        # Before the images of the base, since that is where a wrong folder shows.
        real = read_affnist(options.manual_dir)
    base = load(composed.base, options)
    train, test = (kind() for kind in KINDS[composed.kind])
    if composed.shift is not None:
        train = dataclasses.replace(train, shift=composed.shift)
        test = test if isinstance(test, Affine) else train
    trained = ComposedSet(base.train, train, composed.name)
    if real is not None:
        return ImageData(trained, real)
    # Always of one seed, so that test figures of different seeds compare.
    name = "affNIST-like" if affnist else composed.name
    tested = ComposedSet(base.test, test, name).fixed(seed=0, copies=composed.copies)
    return ImageData(trained, tested, base.skipped)
