"""Models as ONNX and LiteRT files, for programs without TensorFlow."""

import contextlib
import logging
import os
import tempfile
from pathlib import Path
from unittest import mock

from keras import ops

from keras_capsule_poe.errors import BadUse, first_line
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.serving import (
    bound_method,
    described,
    input_range,
    model_card,
    signature,
    with_names,
    write_card,
)

# Packages that write a format, by its name, and the ending of its files.
FORMATS = {"onnx": (("tf2onnx", "onnx"), ".onnx"), "litert": ((), ".tflite")}
OPSET = 18
# What draws random numbers, and how an input is called that replaces them.
_RANDOM = {"StatelessRandomNormalV2": "normal", "StatelessRandomUniformV2": "uniform"}


def export_portable(model, folder, kind, card=None, options=None):
    """Write one file for each endpoint into `folder/KIND`; return its path and what is left out.

    Random numbers are inputs of the files: `normal_1` (n, ...) or `uniform_2` (n, ...). Equal
    numbers give equal samples. Files do not check their inputs; the card states the ranges.

    Args:
        model: Trained model with `ENDPOINTS`.
        folder: Path of a folder. An earlier `folder/KIND` is replaced.
        kind: str, `"onnx"` or `"litert"`.
        card: Dict, further values of the model card; or None.
        options: Dict of arguments of the endpoints, such as `{"domain": "prior"}`; or None.

    Raises:
        BadUse: If the format is unknown or a package is missing.
        RunFailed: If a file cannot be written.

    Example:

    >>> import tempfile, keras_capsule_poe as kcp
    >>> model = kcp.train("digits", model="rbm", hidden=20, epochs=2, verbose=0)
    >>> path, left_out = export_portable(model, tempfile.mkdtemp(), "litert")
    >>> (path / "gibbs_step.tflite").exists(), list(left_out)
    (True, ['sample'])
    """
    if kind not in FORMATS:
        raise BadUse(f"`kind` must be {' or '.join(FORMATS)}. Received: kind={kind!r}.")
    packages, ending = FORMATS[kind]
    _check_packages(kind, packages)
    write = {"onnx": _onnx, "litert": _litert}[kind]
    target = Path(folder) / kind
    calls, left_out = {}, {}
    with atomic_write(target) as temporary:
        temporary.mkdir()
        for name, arguments in portable_endpoints(model).items():
            method = bound_method(model, name, arguments, options or {})
            try:
                function, inputs = without_randomness(method, signature(model, arguments))
                with _quiet():
                    content = write(name, function, inputs)
            except NotPortable as error:
                left_out[name] = str(error)
                continue
            (temporary / f"{name}{ending}").write_bytes(content)
            outputs = function.get_concrete_function().structured_outputs
            calls[name] = described(inputs, outputs)
        whole = {**model_card(model), **(card or {}), "options": options or {}, "format": kind}
        whole |= {"calls": calls, "left_out": left_out}
        write_card(temporary, whole)
    return target, left_out


class NotPortable(Exception):
    """An endpoint has no form in a format; the message says why."""


def portable_endpoints(model):
    """Return the model's endpoints, with one Gibbs step in place of chains of any length."""
    found = {name: args for name, args in model.ENDPOINTS.items() if name != "gibbs"}
    if "gibbs" in model.ENDPOINTS:
        found["gibbs_step"] = ("images", "seed")
    return found


def _check_packages(kind, packages):
    """Raise `BadUse` if a package is missing."""
    import importlib.util

    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise BadUse(
            f"The format {kind} needs {' and '.join(missing)}: "
            f"pip install 'keras-capsule-poe[{kind}]'"
        )


def without_randomness(method, specs):
    """Return a `tf.function` of a method whose random numbers are inputs, and its input specs.

    Args:
        method: Function of tensors that returns a dict of tensors.
        specs: List of `tf.TensorSpec`, those of its arguments. `seed` is left out of the result.
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
        seed = {"seed": tf.constant(0)} if "seed" in names else {}
        fed = {f"{name}:0": value for name, value in (given | seed).items() if name in names}
        fed |= {op.outputs[0].name: given[spec.name] for op, spec in zip(draws, drawn)}
        found = tf.graph_util.import_graph_def(
            graph, fed, [tensor.name for tensor in constant.outputs], name=""
        )
        # ONNX has one name space for inputs and outputs.
        return {
            f"{name}_out" if name in given else name: value for name, value in zip(outputs, found)
        }

    named = with_names(replaced, [spec.name for spec in inputs])
    function = tf.function(named, autograph=False, input_signature=inputs)
    if any("Random" in op for op in _needed(function.get_concrete_function())):
        raise NotPortable("it draws random integers")
    return function, inputs


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


def _onnx(name, function, inputs):
    """Return the bytes of an ONNX model."""
    import onnx
    import tf2onnx

    try:
        model, _ = tf2onnx.convert.from_function(
            function,
            input_signature=inputs,
            opset=OPSET,
        )
        ranges = {spec.name: input_range(spec.name) for spec in inputs}
        model.doc_string = f"{name}: " + "; ".join(f"{key}: {ranges[key]}" for key in ranges)
        onnx.helper.set_model_props(model, ranges)
        onnx.checker.check_model(model)
    except Exception as error:
        raise NotPortable(first_line(str(error))) from error
    return model.SerializeToString()


def _litert(name, function, inputs):
    """Return the bytes of a LiteRT model with one signature, `name`."""
    import tensorflow as tf

    module = tf.Module()
    module.endpoint = function
    with tempfile.TemporaryDirectory() as folder:
        # Gradients are of no use here, and some have values of other graphs.
        plain = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, folder, signatures={name: function}, options=plain)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[name])
        try:
            return converter.convert()
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
