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

from keras_capsule_poe.data import load_images
from keras_capsule_poe.families import get
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.plotting import sample_rows
from keras_capsule_poe.training import Reporter, RunConfig, train

EPOCHS = 10  # more of them, more images and more filters give sharper samples
CAPSULES = 6
SIZE = 28
FILTERS = 32
BATCH = 32
# The readable form of routing: slower in long runs, but started sooner.
IMPLEMENTATION = "plain"


def write_digits(folder):
    """Digits as PNG files, in place of a folder of one's own."""
    folder.mkdir(parents=True)
    for i, image in enumerate(load_images("digits", limit=400).train.images):
        Image.fromarray(image[..., 0]).save(folder / f"{i:03}.png")


def main(images, model_dir):
    """Trains on the folder `images`; the model and a grid of samples go to `model_dir`."""
    capsules = {"epochs": EPOCHS, "batch_size": BATCH, "implementation": IMPLEMENTATION}
    config = RunConfig(
        get("capsules"),
        dataset=str(images),
        image_size=SIZE,
        autoencoder={"filters": FILTERS, "epochs": EPOCHS, "precision": "float32"},
        encoder={"capsules": CAPSULES, **capsules},
        decoder=capsules,
    )
    data = load_images(images, image_size=SIZE, seed=config.seed)
    run = train(config, model_dir, lambda: data, Reporter())
    model = config.family.load(run.path("model.keras"))
    rows = sample_rows(model, rows=4, seed=0, mode="single", domain="posterior")
    save_grid(run.path("grid.png"), rows)
    print(f"Samples, a column a capsule: {run.path('grid.png')}")
    print(f"SavedModel: {run.path('1')}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        main(folder, Path("saved_models") / folder.resolve().name)
    else:
        place = Path(tempfile.mkdtemp(prefix="capsules-"))
        write_digits(place / "digits")
        main(place / "digits", place / "model")
