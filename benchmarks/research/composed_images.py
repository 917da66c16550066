"""How fast images are composed and augmented on one core, and what they look like.

Usage: python benchmarks/research/composed_images.py [FOLDER]
"""

import argparse
import time
from pathlib import Path

import numpy as np

from keras_capsule_poe.data import ComposedSet, load_images
from keras_capsule_poe.data.augmentation import cifar, efficient, norb, shift
from keras_capsule_poe.data.composed import Affine, Overlapping, SideBySide, Translated
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.io.pictures import save_grid

IMAGES, BATCH = 20_000, 128
COLUMNS, ROWS = 12, 4
COMPOSITIONS = (Overlapping(), Translated(), Affine(), SideBySide())
# An augmentation, and the shape of the images that it is for.
AUGMENTATIONS = (
    (shift, (28, 28, 1)),
    (efficient, (28, 28, 1)),
    (cifar, (32, 32, 3)),
    (norb, (48, 48, 2)),
)


def rate(function, n):
    """Images a second of one core's time of a function of indices, the median of batches."""
    seconds = []
    for first in range(0, n - BATCH + 1, BATCH):
        index = np.arange(first, first + BATCH)
        start = time.process_time()
        function(index)
        seconds.append(time.process_time() - start)
    return BATCH / np.median(seconds)


def show(path, images):
    """A grid of the first images, and below each the parts that it is made of."""
    rows = []
    for first in range(0, COLUMNS * ROWS, COLUMNS):
        some = images.take(slice(first, first + COLUMNS))
        targets = some.extras.get("targets")
        rows.append(to_pixels(some.images))
        rows += [] if targets is None else [to_pixels(targets[:, part]) for part in range(2)]
    save_grid(path, rows)


def show_views(path):
    """A grid of the solids of `viewpoints` from all sides, a row a class, left cameras."""
    test = load_images("viewpoints", limit=1).test
    classes = [np.flatnonzero(test.labels == k)[:COLUMNS] for k in range(len(test.class_names))]
    save_grid(path, [to_pixels(test.images[index][..., :1]) for index in classes])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where grids of pictures go")
    args = parser.parse_args()
    digits = load_images("mnist")
    n = min(IMAGES, len(digits.train))
    for composition in COMPOSITIONS:
        epoch = ComposedSet(digits.train, composition).epoch(seed=0, epoch=0)
        print(f"{type(composition).__name__:12} {rate(epoch, n):10,.0f} images/s")
    random = np.random.default_rng(0)
    for augment, (height, width, channels) in AUGMENTATIONS:
        images = random.integers(0, 256, (n, height, width, channels), dtype=np.uint8)
        found = rate(lambda index, f=augment, x=images: f(x[index], random), n)
        print(f"{augment.__name__:12} {found:10,.0f} images/s")
    if args.folder:
        args.folder.mkdir(parents=True, exist_ok=True)
        for composition in COMPOSITIONS:
            name = type(composition).__name__.lower()
            show(args.folder / f"{name}.png", ComposedSet(digits.test, composition).fixed())
        changed = [efficient(digits.test.images[:COLUMNS], random) for _ in range(ROWS)]
        rows = [to_pixels(row) for row in (digits.test.images[:COLUMNS], *changed)]
        save_grid(args.folder / "efficient.png", rows)
        show_views(args.folder / "viewpoints.png")


if __name__ == "__main__":
    main()
