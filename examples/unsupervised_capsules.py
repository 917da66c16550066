"""Unsupervised capsules on a folder of one's own images, through the library.

Reads a folder of image files, trains a small product of expert capsules on them without labels,
stage by stage, and draws samples of single capsules. Without a folder it writes digits as PNG
files first and takes those:

    python examples/unsupervised_capsules.py FOLDER

The settings are small, for a quick look; the model goes to `saved_models/FOLDER`. Stopped, the
same command goes on where it was.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

import keras_capsule_poe as kcp
from keras_capsule_poe.data import load_images
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.plotting import sample_rows

EPOCHS = 10  # more of them, more images and more filters give sharper samples
CAPSULES = 6
SIZE = 28
FILTERS = 32
BATCH = 32
# The readable form of routing: slower in long runs, but started sooner.
IMPLEMENTATION = "reference"


def write_digits(folder):
    """Digits as PNG files, in place of a folder of one's own."""
    folder.mkdir(parents=True)
    for i, image in enumerate(load_images("digits", limit=400).train.images):
        Image.fromarray(image[..., 0]).save(folder / f"{i:03}.png")


def main(images, model_dir):
    """Trains on the folder `images`; the model and a grid of samples go to `model_dir`."""
    model = kcp.ProductOfExpertCapsules(
        capsules=CAPSULES,
        autoencoder={"filters": FILTERS},
        compute={"implementation": IMPLEMENTATION, "precision": "float32"},
    )
    data = load_images(images, image_size=SIZE)
    model.fit(data, epochs=EPOCHS, batch_size=BATCH, folder=model_dir)
    rows = sample_rows(model, rows=4, seed=0, mode="single", domain="posterior")
    save_grid(model_dir / "grid.png", rows)
    print(f"Samples, a column a capsule: {model_dir / 'grid.png'}")
    print(f"SavedModel: {model_dir / '1'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        main(folder, Path("saved_models") / folder.resolve().name)
    else:
        place = Path(tempfile.mkdtemp(prefix="capsules-"))
        write_digits(place / "digits")
        main(place / "digits", place / "model")
