"""Commands on image files: `classify` and `encode`."""

import glob
import json
import os

import click

from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.options import COUNT, NamedPath, option
from keras_capsule_poe.cli.terminal import echo, guarded
from keras_capsule_poe.errors import BadUse, DataError, RunFailed
from keras_capsule_poe.io.text import class_word, printable

# Images that are read and given to the model together.
_AT_ONCE = 500
# Images for which a graph takes longer to trace than it saves.
_FEW = 16


_common = options.together(
    click.argument("files", metavar="FILE...", nargs=-1, required=True, type=NamedPath()),
    options.model_option,
    option(
        "--invert",
        type=click.Choice(["auto", "yes", "no"]),
        default="auto",
        help="Invert the brightness. `auto` does so for images that are dark on light if those of "
        "the training were light on dark, and the other way round.",
    ),
    option("--top", type=COUNT, default=3, help="Number of probabilities in a line."),
    option("--json", "as_json", is_flag=True, help="Print JSON, with all probabilities."),
)


@click.command()
@_common
@guarded
def classify(files, model_dir, invert, top, as_json):
    """Print the most probable classes of images.

    FILE is an image, a folder or .zip file of images, or a pattern such as "*.png". Each page of
    a TIFF and each frame of an animation is an image. Images are prepared as those of the
    training were: size, colours, background and range. Those of other proportions are padded.
    """
    images, model = _begin(files, model_dir, "classifies")

    def words(number):
        return class_word(number, model.class_names)

    def about(row):
        p = row["probabilities"]
        best = {"class": words(p.argmax()), "number": int(p.argmax())}
        return {**best, "probabilities": {words(j): float(each) for j, each in enumerate(p)}}

    _show(_rows(model, images, invert, model.classify), len(images), top, as_json, words, about)


@click.command()
@_common
@options.out_option(
    None,
    (".npz",),
    "Write the codes to an .npz file: `capsules` (N, J, E), `probabilities` (N, J) and `files` "
    "(N,).",
)
@guarded
def encode(files, model_dir, invert, top, as_json, out):
    """Print the most probable capsules of images, and write their codes.

    FILE is an image, a folder or .zip file of images, or a pattern such as "*.png". Images are
    prepared as `capspoe classify` prepares them.
    """
    images, model = _begin(files, model_dir, "encodes")

    def about(row):
        p = row["probabilities"]
        return {"capsule": int(p.argmax()), "probabilities": [float(each) for each in p]}

    kept, rows = {"capsules": [], "probabilities": [], "files": []}, []
    for row in _rows(model, images, invert, model.encode):
        rows.append(row)
        if out is not None and "error" not in row:
            kept["files"].append(printable(row["file"]))
            for name in ("capsules", "probabilities"):
                kept[name].append(row[name])
    _show(rows, len(images), top, as_json, "capsule {}".format, about)
    if kept["files"]:
        import numpy as np

        options.write_arrays(out, {name: np.stack(rows) for name, rows in kept.items()})
        echo(f"Wrote {out}", err=as_json)


def _begin(files, model_dir, verb):
    """Return the images, and the model that `verb` them."""
    # A missing file is said before TensorFlow is imported.
    images = _images(files)
    return images, options.load_able(options.find_model(model_dir), verb)


def _images(files):
    """Return the file, page and name of all images that the arguments name, each once."""
    from keras_capsule_poe.data.folders import listed

    found = []
    for name in map(os.fspath, files):
        paths = [name]
        if "://" in name and not os.path.lexists(name):
            raise BadUse(f"FILE must be on this machine: download it first. Received: {name}")
        if not os.path.lexists(name):
            paths = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else ()
            if not paths:
                raise BadUse(f"There is no file {name}.")
        for path in paths:
            listing = listed(path)
            if not len(listing):
                raise BadUse(f"Folder {path} holds no images.")
            for line in listing.left_out.notes():
                echo(line, err=True)
            found += listing.items()
    once = {}
    for item in found:
        once.setdefault(os.path.abspath(item[2]), item)
    if len(once) < len(found):
        echo(f"Named twice, shown once: {len(found) - len(once)} files", err=True)
    return list(once.values())


def _rows(model, images, invert, ask):
    """Yield a dict for each image: `file`, and `error` or the arrays of the model and `notes`."""
    import numpy as np

    from keras_capsule_poe.data.preparation import prepared_image

    for start in range(0, len(images), _AT_ONCE):
        some, rows, pixels = images[start : start + _AT_ONCE], [], []
        for file, page, name in some:
            rows.append(row := {"file": name})
            try:
                image = prepared_image(file, model.preparation, invert, page, name)
            except DataError as error:
                row["error"] = error
            else:
                row["notes"] = list(image.notes)
                pixels.append(image.pixels)
        answers = ask(_given(np.stack(pixels))) if pixels else {}
        answers = {name: np.asarray(values) for name, values in answers.items()}
        good = [row for row in rows if "error" not in row]
        for k, row in enumerate(good):
            row.update({name: found[k] for name, found in answers.items()})
        yield from rows


def _given(pixels):
    """Return uint8 images as a model takes them: few as a tensor, which needs no graph."""
    if len(pixels) > _FEW:
        return pixels
    import keras

    from keras_capsule_poe.data.mapping import to_pixels

    return keras.ops.convert_to_tensor(to_pixels(pixels))


def _show(rows, images, top, as_json, word, about):
    """Print a line for each image, or JSON; raise if an image could not be read."""
    shown, errors = [], []
    for row in rows:
        file, error, notes = printable(row["file"]), row.get("error"), row.get("notes")
        if error:
            errors.append(error)
            shown.append({"file": file, "error": str(error)})
            if images > 1:
                echo(printable(error), err=True)
            continue
        shown.append({"file": file, **about(row), "notes": notes})
        if notes:
            echo(f"{file}: {', '.join(notes)}", err=True)
        if not as_json:
            p = row["probabilities"]
            best = (-p).argsort(kind="stable")[:top]
            echo(f"{file}: {', '.join(f'{word(j)} {p[j]:.3f}' for j in best)}")
    if as_json:
        click.echo(json.dumps(shown, indent=2))
    if errors and images == 1:
        raise errors[0]
    if errors:
        raise RunFailed(f"{len(errors)} of {images} images could not be read.")
