"""Models as ONNX and LiteRT files, for programs without TensorFlow."""

import contextlib
import functools
import logging
import os
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from keras import ops

from keras_capsule_poe.cards import (
    ROUNDING,
    check_replaceable,
    described,
    dimensions,
    input_range,
    model_card,
    write_card,
)
from keras_capsule_poe.errors import BadUse, first_line
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.keras_private import all_layers
from keras_capsule_poe.quantization import (
    PRECISIONS,
    batches,
    difference_words,
    differences,
    smaller_litert,
    smaller_onnx,
    with_smaller_weights,
)
from keras_capsule_poe.serving import bound_method, signature, with_names

# Packages that write a format, by its name, and the ending of its files.
FORMATS = {"onnx": (("tf2onnx", "onnx"), ".onnx"), "litert": ((), ".tflite")}
# Those that quantised files need, too.
_QUANTIZED = {"onnx": ("onnxruntime",), "litert": ()}
OPSET = 18
# What draws random numbers, and how an input is called that replaces them.
_RANDOM = {"StatelessRandomNormalV2": "normal", "StatelessRandomUniformV2": "uniform"}
_LARGEST = float(np.finfo("float32").max)
# Least and largest value of each input; outputs of others are marked.
_RANGES = {
    "images": (-ROUNDING, 1 + ROUNDING),
    "capsules": (-_LARGEST, _LARGEST),
    "normal": (-_LARGEST, _LARGEST),
    "uniform": (0.0, 1.0),
}


def export_portable(
    model, folder, kind, card=None, options=None, batch_size=None, quantize=None, images=None,
    pictures=(), report=None,
):  # fmt: skip
    """Write one file for each endpoint into `folder/KIND`; return its path and what is left out.

    Random numbers are inputs of the files: `normal_1` (n, ...) or `uniform_2` (n, ...). Equal
    numbers give equal samples. An image, code or index out of its range gives NaN, or -1 for
    integers. Batches must not be empty.

    Args:
        model: Trained model with `ENDPOINTS`.
        folder: Path of a folder. An earlier `folder/KIND` is replaced if nobody changed it.
        kind: str, `"onnx"` or `"litert"`.
        card: Dict, further values of the model card; or None.
        options: Dict of arguments of the endpoints, such as `{"domain": "prior"}`; or None.
        batch_size: int, fixed number of rows N of each call. None: any number.
        quantize: `"float16"` or `"int8"`, smaller numbers in a folder `KIND-float16` or
            `KIND-int8`; or None.
        images: `quantization.Images` that calibrate int8 and measure differences; or None.
        pictures: Paths of PNG files for the model card.
        report: Function of a line of text on the differences of each call; or None.

    Raises:
        BadUse: If an argument is unknown, a package is missing, or the folder holds other files.
        RunFailed: If a file cannot be written.

    Example:

    >>> import tempfile, keras_capsule_poe as kcp
    >>> model = kcp.train("digits", model="rbm", hidden=20, epochs=2, verbose=0)
    >>> path, left_out = export_portable(model, tempfile.mkdtemp(), "litert")
    >>> (path / "gibbs_step.tflite").exists(), list(left_out)
    (True, ['sample'])
    """
    _check(kind, quantize, images, batch_size)
    target = Path(folder) / (f"{kind}-{quantize}" if quantize else kind)
    check_replaceable(target)
    calls, left_out, measured = {}, {}, {}
    with atomic_write(target) as temporary:
        temporary.mkdir()
        for name, arguments in portable_endpoints(model).items():
            method = bound_method(model, name, arguments, options or {})
            method, specs = with_batch(method, signature(model, arguments), batch_size)
            try:
                content, function, inputs, found = _converted(
                    model, name, method, specs, kind, quantize, images
                )
            except NotPortable as error:
                left_out[name] = str(error)
                continue
            if found is not None:
                measured[name] = found
                if report is not None:
                    report(f"{name}: {difference_words(found)}")
            (temporary / f"{name}{FORMATS[kind][1]}").write_bytes(content)
            outputs = function.get_concrete_function().structured_outputs
            calls[name] = described(inputs, outputs)
        whole = {**model_card(model), **(card or {}), "options": options or {}, "format": kind}
        whole |= {"calls": calls, "left_out": left_out, "quantize": quantize}
        whole |= {"batch_size": batch_size, "differences": measured}
        write_card(temporary, whole, pictures, target)
    return target, left_out


def _converted(model, name, method, specs, kind, quantize, images):
    """Return a file, its `tf.function`, its inputs, and `differences` or None without images."""
    # Loops over images keep a converter from seeing the weights in them.
    is_whole = (kind, quantize) == ("litert", "int8")
    with _reference_form(model) if is_whole else contextlib.nullcontext():
        function, inputs = without_randomness(method, specs, _limits(model))
    rows = next((spec.shape[0] for spec in inputs if spec.shape.rank), None)
    given = functools.partial(batches, model, inputs, images, rows)
    with _quiet():
        content = {"onnx": _onnx, "litert": _litert}[kind](name, function, inputs, given, quantize)
        if images is None:
            return content, function, inputs, None
        return content, function, inputs, differences(kind, content, name, function, given, images)


class NotPortable(Exception):
    """An endpoint has no form in a format; the message says why."""


def portable_endpoints(model):
    """Return the model's endpoints, with one Gibbs step in place of chains of any length."""
    found = {name: args for name, args in model.ENDPOINTS.items() if name != "gibbs"}
    if "gibbs" in model.ENDPOINTS:
        found["gibbs_step"] = ("images", "seed")
    return found


def _check(kind, quantize, images, batch_size):
    """Raise `BadUse` if a word is unknown, a package is missing, or int8 has no images."""
    if kind not in FORMATS:
        raise BadUse(f"`kind` must be {' or '.join(FORMATS)}. Received: kind={kind!r}.")
    if quantize not in (None, *PRECISIONS):
        wanted = f"{', '.join(map(repr, PRECISIONS))} or None"
        raise BadUse(f"`quantize` must be {wanted}. Received: quantize={quantize!r}.")
    if quantize == "int8" and images is None:
        raise BadUse("`images` must be images that calibrate int8. Received: images=None.")
    is_count = isinstance(batch_size, int) and not isinstance(batch_size, bool) and batch_size > 0
    if batch_size is not None and not is_count:
        raise BadUse(f"`batch_size` must be one or more. Received: batch_size={batch_size!r}.")
    check_packages(kind, _QUANTIZED[kind] if quantize else ())


def check_packages(kind, more=()):
    """Raise `BadUse` if a package that a format needs is missing."""
    import importlib.util

    packages = FORMATS[kind][0] + more
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise BadUse(
            f"The format {kind} needs {' and '.join(missing)}: "
            f"pip install 'keras-capsule-poe[{kind}]'"
        )


def with_batch(method, specs, size):
    """Return a method and the specs of its arguments for `size` rows, or as they are for None."""
    import tensorflow as tf

    if size is None:
        return method, specs

    def fixed(*values):
        given = iter(values)
        return method(*(tf.constant(size) if s.name == "n" else next(given) for s in specs))

    return fixed, [
        tf.TensorSpec((size, *spec.shape[1:]), spec.dtype, spec.name) if spec.shape.rank else spec
        for spec in specs
        if spec.name != "n"
    ]


def _limits(model):
    """Return the least and the largest value of each input of an endpoint, by its name."""
    return {**_RANGES, "capsule": (0, getattr(model, "capsules", 1) - 1)}


def without_randomness(method, specs, limits=None):
    """Return a `tf.function` of a method whose random numbers are inputs, and its input specs.

    Args:
        method: Function of tensors that returns a dict of tensors.
        specs: List of `tf.TensorSpec`, those of its arguments. `seed` is left out of the result.
        limits: Dict of the least and the largest value of inputs by name. Outputs for others are
            marked, see `_marked`. None: nothing is marked.
    """
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2 as frozen,
    )

    names = [spec.name for spec in specs]
    named = with_names(lambda *values: method(*values), names)
    # The formats have no operator for log(1 + x).
    with mock.patch("keras.ops.log1p", _log1p):
        traced = tf.function(named, autograph=False, input_signature=specs).get_concrete_function()
    outputs = sorted(traced.structured_outputs)
    constant = frozen(traced, lower_control_flow=False)
    graph = constant.graph.as_graph_def()
    if any("Random" in node.op for each in graph.library.function for node in each.node_def):
        raise NotPortable("it draws random numbers in a loop, whose length is not fixed")
    draws = [each for each in constant.graph.get_operations() if each.type in _RANDOM]
    drawn = [
        tf.TensorSpec(each.outputs[0].shape, each.outputs[0].dtype, f"{_RANDOM[each.type]}_{i + 1}")
        for i, each in enumerate(draws)
    ]
    inputs = [spec for spec in specs if spec.name != "seed"] + drawn

    def replaced(*values):
        given = dict(zip((spec.name for spec in inputs), values))
        asked = dict(given)
        if "capsule" in given and limits:
            # It is an index of a row of an array.
            given["capsule"] = tf.clip_by_value(given["capsule"], *limits["capsule"])
        seed = {"seed": tf.constant(0)} if "seed" in names else {}
        fed = {f"{name}:0": value for name, value in (given | seed).items() if name in names}
        fed |= {op.outputs[0].name: given[spec.name] for op, spec in zip(draws, drawn)}
        found = tf.graph_util.import_graph_def(
            graph, fed, [tensor.name for tensor in constant.outputs], name=""
        )
        bad = _out_of_range(asked, limits or {}, rows=found[0].shape[0])
        # ONNX has one name space for inputs and outputs.
        return {
            f"{name}_out" if name in given else name: _marked(value, bad)
            for name, value in zip(outputs, found)
        }

    named = with_names(replaced, [spec.name for spec in inputs])
    function = tf.function(named, autograph=False, input_signature=inputs)
    if any("Random" in op for op in _needed(function.get_concrete_function())):
        raise NotPortable("it draws random integers")
    return function, inputs


def _out_of_range(given, limits, rows):
    """Return which rows (N,) have an input out of range, or () if any has; None without limits.

    `rows` is the static number N, None if it varies.
    """
    import tensorflow as tf

    bad = None
    for name, value in given.items():
        bounds = limits.get(name) or limits.get(name.partition("_")[0])
        if bounds is None:
            continue
        # NaN fails both comparisons.
        outside = ~((value >= bounds[0]) & (value <= bounds[1]))
        if value.shape.rank:
            inside_rows = range(int(value.shape[0] == rows), value.shape.rank)
            outside = tf.reduce_any(outside, axis=list(inside_rows))
        bad = outside if bad is None else bad | outside
    return bad


def _marked(value, bad):
    """Return outputs (N, ...) with NaN, or -1 for integers, in the rows that are `bad`."""
    import tensorflow as tf

    if bad is None:
        return value
    where = tf.reshape(bad, [-1] + [1] * (value.shape.rank - 1))
    mark = np.nan if value.dtype.is_floating else -1
    return tf.where(where, tf.constant(mark, value.dtype), value)


@contextlib.contextmanager
def _reference_form(model):
    """Context in which layers route in their readable form, whose graph has no loops."""
    layers = [layer for layer in all_layers(model) if hasattr(layer, "implementation")]
    kept = [layer.implementation for layer in layers]
    try:
        for layer in layers:
            layer.implementation = "reference"
        yield
    finally:
        for layer, implementation in zip(layers, kept):
            layer.implementation = implementation


def _log1p(x):
    """Return log(1 + x) to seven digits for any x above -0.1, small ones included."""
    # The next term of the series is below 1e-8 of the sum.
    series = x * (1 - x * (1 / 2 - x * (1 / 3 - x * (1 / 4 - x / 5))))
    return ops.where(ops.abs(x) < 0.03, series, ops.log(1 + x))


def _needed(concrete):
    """Return the types of the operations on which the outputs of a function depend."""
    todo, seen = [tensor.op for tensor in concrete.outputs], set()
    while todo:
        op = todo.pop()
        if op.name not in seen:
            seen.add(op.name)
            todo += [tensor.op for tensor in op.inputs]
    return [op.type for op in concrete.graph.get_operations() if op.name in seen]


def onnx_content(method, specs, precision):
    """Return an ONNX model of a method as bytes; its weights are small also when zipped."""
    import onnx

    function, inputs = without_randomness(method, specs)
    with _quiet():
        model = onnx.load_from_string(_onnx("playground", function, inputs, None))
    return with_smaller_weights(model, precision, largest=100).SerializeToString()


def _onnx(name, function, inputs, given, precision=None):
    """Return the bytes of an ONNX model."""
    import onnx
    import tf2onnx

    try:
        model, _ = tf2onnx.convert.from_function(
            function,
            input_signature=inputs,
            opset=OPSET,
        )
        _name_dimensions(model.graph, inputs, function.get_concrete_function().structured_outputs)
        if precision:
            model = smaller_onnx(model, precision, given)
        ranges = {spec.name: input_range(spec.name) for spec in inputs}
        model.doc_string = f"{name}: " + "; ".join(f"{key}: {ranges[key]}" for key in ranges)
        onnx.helper.set_model_props(model, ranges)
        onnx.checker.check_model(model)
    except Exception as error:
        raise NotPortable(first_line(str(error))) from error
    return model.SerializeToString()


def _name_dimensions(graph, inputs, outputs):
    """Give sizes that vary the names of the card in an ONNX graph: N for the batch."""
    specs = {spec.name: spec for spec in inputs} | outputs
    for each in (*graph.input, *graph.output):
        for size, dimension in zip(
            dimensions(specs[each.name].shape), each.type.tensor_type.shape.dim
        ):
            if isinstance(size, str):
                dimension.dim_param = size
            else:
                dimension.dim_value = size
    # Sizes between them have names of the converter, one for each place.
    del graph.value_info[:]


def _litert(name, function, inputs, given, precision=None):
    """Return the bytes of a LiteRT model with one signature, `name`."""
    import tensorflow as tf

    module = tf.Module()
    module.endpoint = function
    with tempfile.TemporaryDirectory() as folder:
        # Gradients are of no use here, and some have values of other graphs.
        plain = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, folder, signatures={name: function}, options=plain)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[name])
        if precision:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if precision == "int8":
            converter.representative_dataset = lambda: ((name, x) for x in given("calibration"))
            # Without quantisation, which follows.
            converter._experimental_calibrate_only = True
        try:
            with warnings.catch_warnings():
                # The interpreter that calibrates is about to move into another package.
                warnings.simplefilter("ignore")
                content = converter.convert()
            return smaller_litert(content) if precision == "int8" else content
        except Exception as error:
            raise NotPortable(first_line(str(error))) from error


@contextlib.contextmanager
def _quiet():
    """Context without the lines of the converters, which write to the terminal's descriptor."""
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
