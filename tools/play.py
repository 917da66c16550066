"""Pages to play with the pretrained models, for the documentation.

Usage: python tools/play.py FOLDER
"""

import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_capsule_poe as kcp
from keras_capsule_poe.errors import CapspoeError
from keras_capsule_poe.explorer.page import ABOUT, BUILT
from keras_capsule_poe.pretrained import pretrained_folder

ROOT = Path(__file__).resolve().parent.parent
# Pages take minutes, so they are kept.
KEPT = ROOT / "build/play"
NAMES = ("fashion_mnist", "mnist")


def is_new(made, name):
    """Return whether a page is newer than its script, its model and the code that writes it."""
    sources = [*BUILT.glob("*"), *pretrained_folder(name).rglob("*.*")]
    sources += [ROOT / "keras_capsule_poe/directions.py", *BUILT.parent.glob("*.py")]
    newest = max(path.stat().st_mtime for path in sources)
    return made.exists() and made.stat().st_mtime > newest


def page(name):
    """Return the folder of a model's page, written anew if something is newer than it."""
    folder = KEPT / name
    if is_new(folder / ABOUT, name):
        return folder
    try:
        images = kcp.data.load_images(name).test
    except CapspoeError as error:
        print(f"The page of {name} has no test images: {error}", file=sys.stderr)
        images = None
    return kcp.explore(kcp.load(name), images, name, static=folder)


def main():
    target = Path(sys.argv[1])
    for name in NAMES:
        shutil.copytree(page(name), target / name, dirs_exist_ok=True)
    first = f'<meta http-equiv="refresh" content="0; url={NAMES[0]}/">'
    (target / "index.html").write_text(
        f'<!doctype html><html lang="en"><title>Play</title>{first}\n'
    )


if __name__ == "__main__":
    main()
