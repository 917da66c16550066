"""SavedModels that any TensorFlow program can load without this package."""

import contextlib
import functools
import inspect
import math
import re
import threading
from pathlib import Path

import numpy as np

from keras_capsule_poe.cards import (
    ROUNDING,
    described,
    input_range,
    model_card,
    takes_any_size,
    write_card,
)
from keras_capsule_poe.errors import first_line
from keras_capsule_poe.io.atomic import atomic_write, write_next

_exporting = threading.Lock()


def export_saved_model(model, folder, card, options=None, version=None, pictures=()):
    """Write `folder/VERSION` atomically, a SavedModel with a model card, and return its path."""
    import tensorflow as tf

    folder, options = Path(folder), options or {}
    # Threads would share the traced graphs of the model.
    with _exporting, _traced_once(model):
        module = tf.Module()
        # Only variables, so that the loaded object needs no class of this package.
        module.model_variables = [variable.value for variable in model.variables]
        signatures = {}
        for name, arguments in model.ENDPOINTS.items():
            signatures[name], lenient = _endpoint(model, name, arguments, options)
            setattr(module, name, lenient)
        traced = {name: found.get_concrete_function() for name, found in signatures.items()}
        # What TensorFlow Serving and `TFSMLayer` call unless they are told otherwise.
        first = next(iter(signatures))
        signatures["serving_default"], module.serve = signatures[first], getattr(module, first)

        def fill(temporary):
            temporary.mkdir()
            try:
                tf.saved_model.save(module, str(temporary), signatures=signatures)
            except tf.errors.OpError as error:
                # For instance, the disk is full.
                raise OSError(first_line(error.message)) from error
            calls = {
                name: described(signature(model, model.ENDPOINTS[name]), found.structured_outputs)
                for name, found in traced.items()
            }
            whole = {**model_card(model), "calls": calls, "options": options, **card}
            write_card(temporary, whole, pictures)

        if version is None:
            return write_next(folder, fill, lambda: str(max(versions(folder), default=0) + 1))
        with atomic_write(folder / str(version)) as temporary:
            fill(temporary)
    return folder / str(version)


def versions(folder):
    """Return the version numbers of the SavedModels in a folder, in order."""
    names = (entry.name for entry in Path(folder).glob("*"))
    return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))


def newest_version(folder):
    """Return the path of the newest SavedModel in a folder, or None."""
    # Not those of a user's folder, such as 0007.
    found = [Path(folder) / str(number) for number in versions(folder)]
    return next((path for path in reversed(found) if path.is_dir()), None)


def signature(model, arguments):
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
        method = getattr(model, name)
        # Shared capsules are an argument of some calls only.
        takes_more = "shared" in inspect.signature(method).parameters
        kind = {"reduce_retracing": True} if takes_more else {}
        specs = None if takes_more else signature(model, arguments)
        graph = tf.function(method, autograph=False, input_signature=specs, **kind)
        object.__setattr__(model, name, graph)
    try:
        yield
    finally:
        for name in model.SHARED:
            object.__delattr__(model, name)


# Kinds of numbers that an endpoint takes besides float32, for clients that do not convert.
_CONVERTED = ("uint8", "float64")
# Most images of a block, and about how many values they have together.
_IMAGES, _VALUES = 64, 2**19


def bound_method(model, name, arguments, options):
    """Return a method of the model with the `options` that it takes besides its arguments."""
    method = getattr(model, name)
    takes = inspect.signature(method).parameters.keys() - set(arguments)
    return functools.partial(method, **{key: options[key] for key in takes & options.keys()})


def with_names(function, names):
    """Return a function of positional arguments that takes them by name, too."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function


def _endpoint(model, name, arguments, options):
    """Return two `tf.function`s of a method: with a signature, and for arrays of any kind."""
    import tensorflow as tf

    method = bound_method(model, name, arguments, options)
    specs = signature(model, arguments)

    # Without AutoGraph, which took longer than the rest of the export.
    graph = functools.partial(tf.function, autograph=False)

    def checked(*values):
        return method(*(_checked(model, *pair) for pair in zip(arguments, values)))

    block = graph(with_names(checked, arguments), input_signature=specs)
    if "seed" in arguments and specs[0].shape.rank:
        # Blocks would repeat the random numbers.
        run = _without_empty(block, specs)
    else:
        run = _in_blocks(block, specs, model.image_shape) if specs[0].shape.rank else block
    strict = graph(with_names(lambda *values: run(*values), arguments), input_signature=specs)
    if not specs[0].shape.rank:
        return strict, strict

    def lenient(*values):
        pairs = zip(specs, values)
        values = [_accepted(spec, x) if spec.shape.rank else x for spec, x in pairs]
        if values[0].dtype == tf.uint8:
            return run(*values)
        # One call, where a loop of its own would take longer to trace.
        return strict(*(_converted(spec, x) for spec, x in zip(specs, values)))

    lenient = graph(with_names(lenient, arguments))
    for dtype in ("float32", *_CONVERTED):
        # Arrays of unknown rank, so that a wrong shape is named by the endpoint.
        lenient.get_concrete_function(
            *(tf.TensorSpec(None, dtype, s.name) if s.shape.rank else s for s in specs)
        )
    return strict, lenient


def _accepted(spec, x):
    """Return an array that has the shape of `spec` and a right kind, or fail with one line."""
    import tensorflow as tf

    wanted = ", ".join("N" if size is None else str(size) for size in spec.shape)
    shape, sizes = tf.shape(x), [0 if size is None else size for size in spec.shape]
    same = tf.cond(
        tf.equal(tf.rank(x), len(sizes)),
        lambda: tf.reduce_all((tf.reshape(shape, [len(sizes)]) == sizes) | (np.array(sizes) == 0)),
        lambda: tf.constant(False),
    )
    check = tf.debugging.Assert(
        same, [f"`{spec.name}` must have shape ({wanted}). Received: shape", shape], summarize=8
    )
    with tf.control_dependencies([check]):
        # The shape is hidden, or TensorFlow would compare it before the check above does.
        return tf.raw_ops.PlaceholderWithDefault(input=x, shape=tf.TensorShape(None))


def _converted(spec, x):
    """Return an accepted array as float32 of the shape of `spec`, or another argument as it is."""
    import tensorflow as tf

    if not spec.shape.rank:
        return x
    values = tf.cast(x, tf.float32)
    return tf.ensure_shape(values / 255 if x.dtype == tf.uint8 else values, spec.shape)


def _without_empty(block, specs):
    """Return a function that runs an empty batch with an image of zeros and drops its results."""
    import tensorflow as tf

    def run(*values):
        count = tf.shape(values[0])[0]
        # Convolutions reject an empty batch.
        spare = tf.cast(tf.equal(count, 0), tf.int32)
        filled = [_filled(_converted(spec, x), spare) for spec, x in zip(specs, values)]
        return {key: value[:count] for key, value in block(*filled).items()}

    return run


def _filled(x, rows):
    """Return an array with this number of rows of zeros more."""
    import tensorflow as tf

    return tf.concat([x, tf.zeros((rows, *tf.unstack(tf.shape(x))[1:]))], 0) if x.shape.rank else x


def _in_blocks(block, specs, image_shape):
    """Return a function that runs `block` on a few images at a time, in bounded memory."""
    import tensorflow as tf

    sizes = [size or 64 for size in specs[0].shape[1:]]
    at_once = max(1, min(_IMAGES, _VALUES // math.prod(sizes)))
    # Traced once: a loop would trace a `tf.function` again.
    traced = block.get_concrete_function()

    # Blocks of one size, since other formats have no arrays of blocks of any size.
    outputs = {
        key: tf.TensorSpec((at_once, *spec.shape[1:]), spec.dtype)
        for key, spec in traced.structured_outputs.items()
    }

    def rows(values, start, size):
        # Bytes become floats here, a few at a time.
        where = start + tf.range(size)
        pairs = zip(specs, values)
        return traced(*(_converted(spec, tf.gather(x, where)) for spec, x in pairs))

    def looped(values, count):
        rest = (count - 1) % at_once + 1
        starts = at_once * tf.range((count - rest) // at_once)

        def one(start):
            found = rows(values, start, at_once)
            for key, value in found.items():
                value.set_shape(outputs[key].shape)
            return found

        found = tf.map_fn(one, starts, parallel_iterations=1, fn_output_signature=outputs)
        last = rows(values, count - rest, rest)

        def joined(whole, last):
            return tf.concat(
                [tf.reshape(whole, (count - rest, *tf.unstack(tf.shape(last))[1:])), last], 0
            )

        return {key: joined(found[key], last[key]) for key in outputs}

    def empty():
        # Convolutions reject an empty batch.
        sizes = (zip(spec.shape[1:], (*image_shape, 0)) for spec in specs)
        zeros = (tf.zeros([1, *(size or usual for size, usual in each)]) for each in sizes)
        return {key: value[:0] for key, value in traced(*zeros).items()}

    def run(*values):
        count = tf.shape(values[0])[0]
        return tf.cond(tf.equal(count, 0), empty, lambda: looped(values, count))

    return run


def _checked(model, name, value):
    """Return the value of an argument after an assertion that it is in range."""
    import tensorflow as tf

    if name == "images":
        inside = tf.reduce_all((value >= -ROUNDING) & (value <= 1 + ROUNDING))
        wanted = input_range("images")
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
