"""Model cards: README.md and model_card.json of exported files, with sums of those files."""

import contextlib
import platform
import shutil
from importlib import metadata
from pathlib import Path

from keras_capsule_poe import templates
from keras_capsule_poe.errors import BadUse, RunFailed, listing
from keras_capsule_poe.io.records import check_regular, digest, read_json, write_json

SUMS, CARD, README = "SHA256SUMS", "model_card.json", "README.md"
# Packages whose versions a card tells.
PACKAGES = ("keras-capsule-poe", "tensorflow", "keras", "numpy", "tensorflow-datasets")
# Data sets by their names at huggingface.co, if these are others.
_HUB_NAMES = {
    "mnist": "ylecun/mnist",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
}
# Rounding of byte / 255 may give slightly more than one.
ROUNDING = 1e-3

_INPUTS = {
    "images": "pixels in [0, 1], bytes divided by 255",
    "capsules": "finite capsules, as `encode` gives them",
    "capsule": "index of a capsule, from 0",
    "n": "number of images, at least 0",
    "steps": "number of steps, at least 0",
    "seed": "random seed; equal seeds give equal results",
    "normal": "independent standard normal numbers",
    "uniform": "independent uniform numbers in [0, 1)",
}
_OUTPUTS = {
    "images": "pixels in [0, 1]",
    "capsules": "capsules",
    "probabilities": "probability of each capsule or class",
    "classes": "index of the most probable class",
    "capsule": "index of the active capsule",
    "free_energy": "free energy in nats; no score of how usual a single image is",
    "primary_capsules": "primary capsules, squashed",
}
# The first output of an endpoint.
_FIRST = {"classify": "probabilities", "encode": "capsules"}
# Tasks of models at huggingface.co, by the endpoints that have them.
_TASKS = {"classify": "image-classification", "sample": "unconditional-image-generation"}


def takes_any_size(model):
    """Return whether a model takes images of any height and width."""
    return getattr(model, "any_size", False) and model.view is None


def input_range(name):
    """Return what an input of an endpoint must hold, in words."""
    # Random numbers are called `normal_1`, `uniform_2`.
    return _INPUTS.get(name) or _INPUTS[name.partition("_")[0]]


def described(inputs, outputs):
    """Return the inputs and outputs of an endpoint as a dict.

    Args:
        inputs: List of `tf.TensorSpec`.
        outputs: Dict of `tf.TensorSpec`.
    """
    return {
        "inputs": {spec.name: {**_kind(spec), "range": input_range(spec.name)} for spec in inputs},
        "outputs": {
            name: {**_kind(spec), "meaning": _OUTPUTS.get(name.removesuffix("_out"), "")}
            for name, spec in outputs.items()
        },
    }


def dimensions(shape):
    """Return the sizes of a batch of rows, with the names N, H and W of those that vary.

    >>> dimensions((None, None, None, 1)), dimensions((None, 20, 16)), dimensions(())
    (['N', 'H', 'W', 1], ['N', 20, 16], [])
    """
    names = (*"NHW", *(f"D{i}" for i in range(3, len(shape))))
    return [name if size is None else size for name, size in zip(names, shape)]


def _kind(spec):
    return {"shape": dimensions(spec.shape), "dtype": spec.dtype.name}


def model_card(model):
    """Return the common part of model cards: shapes, endpoints and package versions."""
    shapes = {"image_shape": list(model.image_shape)}
    if takes_any_size(model):
        shapes["any_size"] = True
    if hasattr(model, "dim"):
        shapes["capsules"] = [model.capsules, model.dim]
    return {
        "model": model.TITLE,
        "class": type(model).__name__,
        **shapes,
        "endpoints": {name: list(arguments) for name, arguments in model.ENDPOINTS.items()},
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def write_card(folder, card, pictures=(), target=None):
    """Write a model card as JSON, and as Markdown that says how to load and call the model.

    Args:
        folder: Path of the folder of the exported files, whose sums are written, too. The card
            shows its pictures.
        card: Dict of `model_card` and further values, such as `calls`.
        pictures: Paths of pictures that are copied into the folder before.
        target: Path of the folder that this one replaces, which is checked once more, or None.
    """
    for picture in pictures:
        shutil.copy(picture, folder)
    calls = card.get("calls", {})
    known = {name: list(call["inputs"]) for name, call in calls.items()} or card["endpoints"]
    # The first call that takes images, as an example.
    first = next(name for name, inputs in known.items() if "images" in inputs)
    outputs = calls[first]["outputs"] if calls else {_FIRST.get(first, "images"): None}
    optional = {"data": None, "seed": None, "class_names": (), "left_out": {}, "differences": {}}
    optional |= {"license": None, "datasets": (), "metrics": {}, "quantize": None, "calls": {}}
    optional |= {"forms": (), "batch_size": None}
    shown = {**optional, "format": "saved_model", **card}
    found = {
        "first": first,
        "output": next(iter(outputs)),
        "held_out": _held_out(shown["metrics"]),
        "task": next((_TASKS[name] for name in _TASKS if name in card["endpoints"]), None),
        "datasets": [_HUB_NAMES.get(name, name) for name in shown["datasets"]],
        "pictures": sorted(path.name for path in folder.glob("*.png")),
    }
    text = templates.render("model_card.md", card=shown, **found)
    write_json(folder / CARD, card)
    (folder / README).write_text(text, "utf-8")
    write_sums(folder)
    if target is not None:
        # Minutes may have passed.
        check_replaceable(target)


def _held_out(metrics):
    """Return the metrics of held-out images as a dict of numbers, from a dict by stage."""
    stages = [found for found in metrics.values() if isinstance(found, dict)]
    pairs = [pair for found in stages for pair in found.items()]
    # Earlier versions called them `held_out_`. Each part has a loss of its own.
    return {
        name.removeprefix("held_out_").removeprefix("val_"): value
        for name, value in pairs
        if name.startswith(("held_out_", "val_"))
        and not name.endswith("loss")
        and isinstance(value, (int, float))
    }


def write_sums(folder):
    """Write the digests of all files in a folder, for `sha256sum -c`."""
    lines = [f"{digest(folder / name)}  {name}\n" for name in _files(folder)]
    (folder / SUMS).write_text("".join(lines), "utf-8")


def check_replaceable(folder):
    """Raise `BadUse` if replacing `folder` would lose anything but an earlier export."""
    folder = Path(folder)
    if problem := _what_is_lost(folder):
        raise BadUse(
            f"{folder} must be missing, empty or an earlier export as it was written, since an "
            f"export replaces it. Received: {problem}. Move it away, or choose another folder."
        )


def _what_is_lost(folder):
    """Return what a replaced folder has that is no earlier export, or None."""
    if not folder.is_dir():
        return "a file" if folder.exists() else None
    names = _files(folder)
    if not names and not any(folder.iterdir()):
        return None
    card = None
    with contextlib.suppress(RunFailed):
        card = read_json(folder / CARD)
    is_ours = isinstance(card, dict) and "keras-capsule-poe" in (card.get("packages") or {})
    if not is_ours:
        return f"a folder without {CARD} of an export, with {listing(names, 3) or 'folders'}"
    sums = _sums(folder)
    if sums is None:
        # Earlier versions wrote no sums: files are known by the names of the calls.
        known = {
            CARD,
            README,
            *(f"{name}{end}" for name in card.get("calls", ()) for end in _ENDINGS),
        }
        other = [name for name in names if name not in known]
    else:
        other = [name for name in names if sums.get(name) != digest(folder / name)]
    return f"{listing(other, 3)}, which the export did not write so" if other else None


# Endings of the files of calls.
_ENDINGS = (".onnx", ".tflite")


def _files(folder):
    """Return the sorted names of the files in a folder that `write_sums` lists."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    # A clone of a repository keeps its own files in `.git`.
    return sorted(str(path) for path in found if str(path) != SUMS and path.parts[0] != ".git")


def _sums(folder):
    """Return the digests of the files in a folder as an export wrote them, or None."""
    try:
        check_regular(folder / SUMS, 2**27)
        lines = (folder / SUMS).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return {name: found for found, _, name in (line.partition("  ") for line in lines)}
