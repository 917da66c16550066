"""SavedModel that any TensorFlow program can load without this package."""

import contextlib
import functools
import inspect
import platform
import re
import threading
from importlib import metadata
from pathlib import Path

from keras_capsule_poe.errors import first_line
from keras_capsule_poe.io.atomic import atomic_write, write_next
from keras_capsule_poe.io.records import digest, write_json

PACKAGES = ("keras-capsule-poe", "tensorflow", "keras", "numpy", "tensorflow-datasets")
CARD, SUMS = "model_card.json", "SHA256SUMS"
_exporting = threading.Lock()
# Rounding of byte / 255 may give slightly more than one.
ROUNDING = 1e-3


def export_saved_model(model, folder, card, options=None, version=None):
    """Write `folder/VERSION` atomically, a SavedModel with a model card, and return its path."""
    import tensorflow as tf

    folder, options = Path(folder), options or {}
    # Threads would share the traced graphs of the model.
    with _exporting, _traced_once(model):
        module = tf.Module()
        # Only variables, so that the loaded object needs no class of this package.
        module.model_variables = [variable.value for variable in model.variables]
        endpoints = {
            name: _endpoint(model, name, arguments, options)
            for name, arguments in model.ENDPOINTS.items()
        }
        for name, endpoint in endpoints.items():
            setattr(module, name, endpoint)

        def fill(temporary):
            temporary.mkdir()
            try:
                tf.saved_model.save(module, str(temporary), signatures=endpoints)
            except tf.errors.OpError as error:
                # For instance, the disk is full.
                raise OSError(first_line(error.message)) from error
            write_json(temporary / CARD, {**model_card(model), "options": options, **card})
            _write_sums(temporary)

        if version is None:
            return write_next(folder, fill, lambda: str(max(versions(folder), default=0) + 1))
        with atomic_write(folder / str(version)) as temporary:
            fill(temporary)
    return folder / str(version)


def model_card(model):
    """Return the common part of model cards: shapes, endpoints and package versions."""
    shapes = {"image_shape": list(model.image_shape)}
    if takes_any_size(model):
        shapes["any_size"] = True
    if hasattr(model, "dim"):
        shapes["capsules"] = [model.capsules, model.dim]
    return {
        "model": model.TITLE,
        **shapes,
        "endpoints": {name: list(arguments) for name, arguments in model.ENDPOINTS.items()},
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


def takes_any_size(model):
    """Return whether a model takes images of any height and width."""
    return getattr(model, "any_size", False) and model.view is None


def versions(folder):
    """Return the version numbers of the SavedModels in a folder, in order."""
    names = (entry.name for entry in Path(folder).glob("*"))
    return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))


def newest_version(folder):
    """Return the path of the newest SavedModel in a folder, or None."""
    found = versions(folder)
    return Path(folder) / str(found[-1]) if found else None


def _write_sums(folder):
    """Write the digests of all files in a folder, for `sha256sum -c`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{digest(path)}  {path.relative_to(folder)}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _signature(model, arguments):
    """Return the `tf.TensorSpec` of each argument of an endpoint."""
    import tensorflow as tf

    sizes = (None, None) if takes_any_size(model) else model.image_shape[:2]
    shapes = {"images": (None, *sizes, model.image_shape[2])}
    if "capsules" in arguments:
        shapes["capsules"] = (None, model.capsules, model.dim)
    return [
        tf.TensorSpec(shapes[name], tf.float32, name)
        if name in shapes
        else tf.TensorSpec((), tf.int32, name)
        for name in arguments
    ]


@contextlib.contextmanager
def _traced_once(model):
    """Context in which the model's `SHARED` methods are graphs that all endpoints call."""
    import tensorflow as tf

    # Routing makes a large graph, and half of the endpoints need it.
    for name, arguments in model.SHARED.items():
        graph = tf.function(
            getattr(model, name), autograph=False, input_signature=_signature(model, arguments)
        )
        object.__setattr__(model, name, graph)
    try:
        yield
    finally:
        for name in model.SHARED:
            object.__delattr__(model, name)


def _endpoint(model, name, arguments, options):
    """Return a method of the model as a `tf.function` that checks its arguments."""
    import tensorflow as tf

    method = getattr(model, name)
    takes = inspect.signature(method).parameters.keys() - set(arguments)
    method = functools.partial(method, **{key: options[key] for key in takes & options.keys()})

    def endpoint(*values):
        values = [_checked(model, *pair) for pair in zip(arguments, values)]
        if not values[0].shape.rank:
            return method(*values)
        # Convolutions reject an empty batch: add an image of zeros and drop its results.
        count = tf.shape(values[0])[0]
        spare = tf.cast(tf.equal(count, 0), tf.int32)
        filled = [
            tf.concat([x, tf.zeros((spare, *tf.unstack(tf.shape(x))[1:]))], axis=0)
            if x.shape.rank
            else x
            for x in values
        ]
        return {key: value[:count] for key, value in method(*filled).items()}

    # Without AutoGraph, which took longer than the rest of the export.
    return tf.function(endpoint, autograph=False, input_signature=_signature(model, arguments))


def _checked(model, name, value):
    """Return the value of an argument after an assertion that it is in range."""
    import tensorflow as tf

    if name == "images":
        inside = tf.reduce_all((value >= -ROUNDING) & (value <= 1 + ROUNDING))
        wanted = "pixels in [0, 1], bytes divided by 255"
    elif name == "capsules":
        inside, wanted = tf.math.is_finite(tf.reduce_sum(tf.abs(value))), "finite numbers"
    elif name == "capsule":
        inside = (value >= 0) & (value < model.capsules)
        wanted = f"an index of {model.capsules} capsules, from 0"
    elif name in ("n", "steps"):
        inside, wanted = value >= 0, "at least zero"
    else:
        return value
    found = [value] if value.shape.rank == 0 else [tf.reduce_min(value), tf.reduce_max(value)]
    message = [f"`{name}` must be {wanted}. Received:", *found]
    with tf.control_dependencies([tf.debugging.Assert(inside, message)]):
        return tf.identity(value)
