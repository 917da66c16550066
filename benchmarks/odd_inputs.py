"""Damaged and odd images, archives, settings and calls: each is refused in a line, or done right.

The cases are written by a script. `_verdicts.py` says what is `refused`, `right` or `otherwise`; a
SavedModel's own checks refuse, too.
Usage: python benchmarks/odd_inputs.py [--model-dir DIR] [--json FILE]
"""

import functools
import subprocess

import _children as children
import _odd_files as odd
import _odd_sources as sources
import _tiny as tiny
import _verdicts as verdicts
import numpy as np
import tensorflow as tf

from keras_capsule_poe import registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.pixels import check_contrast
from keras_capsule_poe.errors import CapspoeError, first_line
from keras_capsule_poe.training.settings import read_toml

# What settings are tried with; most of them mean nothing for most.
VALUES = ("", "nan", "1e400", "-1", "0", "2.5", "two")
NAMES = (
    "limit", "seed", "held_out", "image_size", "checkpoint_seconds", "autoencoder.filters",
    "encoder.capsules", "encoder.learning_rate", "encoder.load_balancing",
)  # fmt: skip
TOML = {
    "no TOML": "[encoder\n",
    "no text": b"\xff\xfe\x00",
    "no section": "[wings]\nspan = 2\n",
    "no setting": "[encoder]\nwings = 2\n",
    "a section as a number": "encoder = 3\n",
    "a number as a section": "[seed]\nvalue = 3\n",
    "infinite": "limit = inf\n",
    "infinite sides": "image_size = [inf, 28]\n",
    "three sides": "image_size = [28, 28, 28]\n",
    "truth as a number": "limit = true\n",
    "a date": "dataset = 1979-05-27\n",
    "a long number": f"limit = {'9' * 400}\n",
}


def cases(folder, model_dir):
    """Triples of a kind, a name and a function that gives nothing where all is right.

    Args:
        folder: Path, empty, to write to.
        model_dir: Path of a trained model.
    """
    yield from image_cases(folder)
    yield from archive_cases(folder)
    yield from source_cases(folder)
    for name in NAMES:
        for value in VALUES:
            yield "setting", f"{name}={value!r}", functools.partial(try_setting, name, value)
    for name, content in TOML.items():
        path = folder / f"{name}.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        yield "setting", f"TOML, {name}", functools.partial(try_toml, path)
    yield from call_cases(tf.saved_model.load(str(model_dir / "1")))
    yield from command_cases(folder, model_dir)


def image_cases(root):
    """Files in a folder of images."""

    def folder_of(name, content):
        folder = root / f"image {len(list(root.iterdir()))}"
        folder.mkdir()
        for copy in "abc":  # of which one is tested with
            (folder / f"{copy} {name}").write_bytes(content)
        return folder

    for name, content in odd.damaged_images():
        yield (
            "image",
            name,
            functools.partial(
                try_images,
                folder_of(name, content),
                shapes=[(odd.SIZE, odd.SIZE, c) for c in (1, 3)],
            ),
        )
    for name, content, shape in odd.odd_images():
        yield "image", name, functools.partial(try_images, folder_of(name, content), shapes=[shape])
    for name, folder in odd.odd_folders(root):
        yield "image", name, functools.partial(try_images, folder, shapes=[(odd.SIZE, odd.SIZE, 1)])
    for name, folder, classes in odd.folders_of_people(root):
        yield "folder", name, functools.partial(try_folder, folder, classes)


def archive_cases(root):
    """Archives of arrays."""
    for name, arrays, is_good in odd.odd_arrays():
        path = root / f"arrays {len(list(root.iterdir()))}.npz"
        path.write_bytes(odd.archive(arrays))
        yield "archive", name, functools.partial(try_images, path, is_good=is_good)
    for name, content in odd.damaged_archives():
        path = root / f"archive {len(list(root.iterdir()))}.npz"
        path.write_bytes(content)
        yield "archive", name, functools.partial(try_images, path, is_good=False)


def source_cases(root):
    """Data sets in every form that is read."""
    for kind, name, make, wanted in sources.cases():
        folder = root / f"source {len(list(root.iterdir()))}"
        folder.mkdir()
        yield kind, name, functools.partial(try_source, *make(folder), wanted)


def try_source(dataset, options, wanted):
    """Loads a data set; `wanted` are the number of its images and its classes, or None."""
    data = load_images(dataset, **options)
    if wanted is None:
        raise verdicts.Wrong(f"it was taken: {data.summary()}")
    found = len(data.train) + len(data.test), data.train.class_names
    if found != wanted:
        raise verdicts.Wrong(f"{found} in place of {wanted}")


def try_images(path, shapes=None, is_good=None):
    """Loads images; `shapes` they may have, and whether they should be usable, where known."""
    data = load_images(path).hold_out()
    if is_good is False:
        raise verdicts.Wrong(f"it was taken: {data.summary()}")
    if shapes and data.image_shape not in shapes:
        raise verdicts.Wrong(f"images of {data.image_shape}")
    if data.train.images.dtype != np.uint8 or not len(data.train):
        raise verdicts.Wrong(data.summary())


def try_folder(folder, classes):
    """Loads a folder of two classes; it must have them on both sides, and contrast."""
    data = load_images(folder)
    contrast = check_contrast(data.train.images)
    if classes is None:
        raise verdicts.Wrong(f"it was taken: {data.summary()}")
    for part in (data.train, data.test):
        if part.class_names != classes or len(np.unique(part.labels)) != len(classes):
            raise verdicts.Wrong(f"classes {part.class_names}")
    if contrast or data.train.images.max() < 200:
        raise verdicts.Wrong(f"values up to {data.train.images.max()}")
    tested = {image.tobytes() for image in data.test.images}
    if tested & {image.tobytes() for image in data.train.images}:
        raise verdicts.Wrong("training images are tested")


def try_setting(name, value):
    """Sets one setting of a tiny model and builds it."""
    config = registry.settings("capsules", dataset="digits")
    for setting in tiny.SETTINGS["capsules"]:
        config.set(*setting.split("="))
    config.set(name, value)
    config.check()


def try_toml(path):
    """Reads settings from a file and builds what they describe."""
    config = registry.settings("capsules")
    config.update(read_toml(path))
    config.check()


def call_cases(model):
    """Calls of a SavedModel."""
    images = np.full((2, 28, 28, 1), 0.5, "float32")
    odd_pixels = {
        "bytes": 255 * images,
        "below zero": images - 1,
        "NaN": images * np.nan,
        "infinite": np.full_like(images, np.inf),
        "of one image": images[0],
        "of another size": images[:, 2:],
        "RGB": np.repeat(images, 3, axis=-1),
        "integers": np.ones((2, 28, 28, 1), "uint8"),
        "doubles": images.astype("float64"),
        "none": images[:0],
        "words": np.full((2, 28, 28, 1), "a"),
    }
    for name, pixels in odd_pixels.items():
        for endpoint in ("encode", "reconstruct", "free_energy"):
            call = functools.partial(try_call, model, endpoint, (pixels,), len(pixels))
            yield "call", f"{endpoint}, images {name}", call
    for arguments, n in (
        ((-1, 2, 0), 2), ((3, 2, 0), 2), ((99, 2, 0), 2), ((0, -2, 0), 0), ((0, 0, 0), 0),
        ((0, 2, -1), 2), ((1.5, 2, 0), 2), ((0, 2.5, 0), 2), ((2**31, 2, 0), 2),
        (("a", 2, 0), 2), ((None, 2, 0), 2), ((0, 2), 2),
    ):  # fmt: skip
        call = functools.partial(try_call, model, "sample_capsule", arguments, n)
        yield "call", f"sample_capsule{arguments}", call


def try_call(model, endpoint, arguments, n):
    """Calls an endpoint; its results must be finite, and of `n` images."""
    try:
        results = getattr(model, endpoint)(*arguments)
    except (tf.errors.InvalidArgumentError, TypeError, ValueError) as error:
        # TensorFlow checks the arguments of a SavedModel's functions before our code sees them.
        raise CapspoeError(first_line(error)) from error
    for name, value in results.items():
        if len(value) != n or not np.isfinite(value.numpy()).all():
            raise verdicts.Wrong(f"{name} of shape {value.shape}, finite or not")


def command_cases(folder, model_dir):
    """Commands on a trained model."""
    out = ("--out", folder / "out.png")
    for arguments in (
        ("sample", "--rows", 0, *out), ("sample", "--rows", 10**6, *out),
        ("sample", "--n", 3, *out), ("sample", "--mode", "wings", *out),
        ("sample", "--domain", "wings", *out), ("sample", "--seed", -1, *out),
        ("sample", "--out", folder / "out.doc"), ("sample", "--out", folder),
        ("sample", "--out", folder / ("n" * 300 + ".png")), ("sample", "--steps", 3, *out),
        ("sample", "--rows", 1200, "--out", folder / "out.jpg"),
        ("reconstruct", "--n", 0, *out), ("reconstruct", "--n", -3, *out),
        ("traverse", "--span", "nan", *out), ("traverse", "--capsule", 3, *out),
        ("traverse", "--image", 10**9, *out), ("traverse", "--steps", 10**8, *out),
        ("evaluate", "--limit", 1), ("evaluate", "--json", folder), ("export", "--domain", "wings"),
        ("compare", folder, folder), ("compare", folder), ("report", "--metrics", folder),
        ("likelihood",), ("likelihood", "--base", "wings"),
        ("segment", *out),
    ):  # fmt: skip
        call = functools.partial(verdicts.try_command, model_dir, arguments)
        yield "command", " ".join(map(str, arguments)).replace(str(folder), "."), call


def all_cases(folder, args):
    """The cases, with a model that is trained first unless one is given."""
    model_dir = args.model_dir or folder / "model"
    if not args.model_dir:
        command = [*tiny.CAPSPOE, *tiny.train_options("capsules", model_dir, epochs=1)]
        children.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (folder / "cases").mkdir()
    yield from cases(folder / "cases", model_dir)


if __name__ == "__main__":
    verdicts.main(__doc__, all_cases, "of capsules; default: a tiny one, trained")
