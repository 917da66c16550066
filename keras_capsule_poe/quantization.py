"""Smaller numbers in exported files: calibration on images of a run, and what they change."""

import dataclasses
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from keras_capsule_poe.data.mapping import spread, to_pixels

# Numbers of the weights, and with int8 also of most activations.
PRECISIONS = ("float16", "int8")
# Images that calibrate, and held-out images that measure, at most; rows of a call.
CALIBRATED, MEASURED, _ROWS = 256, 512, 16
# Arrays of fewer numbers stay as they are.
_SMALL = 256
# Largest float16.
_HALF = 65504.0


@dataclasses.dataclass(frozen=True)
class Images:
    """Images of a run for quantisation. Test images have no place in it.

    Attributes:
        calibration: Array (N, H, W, C), uint8 or pixels, of training images.
        held_out: Array (M, H, W, C) of held-out images.
        labels: Array (M,) of classes of the held-out images, or None.
    """

    calibration: Any
    held_out: Any
    labels: Any = None

    @classmethod
    def of(cls, data):
        """Return evenly spaced training and held-out images of an `ImageData`."""
        train = data.train.take(spread(len(data.train), CALIBRATED))
        held_out = data.held_out.take(spread(len(data.held_out), MEASURED))
        labels = held_out.labels
        if labels is None or labels.ndim != 1 or labels.min(initial=0) < 0:
            labels = None
        return cls(np.asarray(train.images), np.asarray(held_out.images), labels)


def batches(model, inputs, images, rows, kind):
    """Yield inputs of an endpoint, dicts of arrays, for the images of a `kind` of `Images`.

    Args:
        model: The model, which encodes images for endpoints that take codes.
        inputs: List of `tf.TensorSpec` of the endpoint.
        images: `Images`.
        rows: int, rows of each call; None: `_ROWS` or fewer.
        kind: str, `"calibration"` or `"held_out"`.
    """
    pixels, random = to_pixels(getattr(images, kind)), np.random.default_rng(0)
    names = {spec.name for spec in inputs}
    codes = np.asarray(model.encode(pixels).capsules) if "capsules" in names else None
    rows, is_fixed = rows or _ROWS, rows is not None
    for k, start in enumerate(range(0, len(pixels), rows)):
        part = slice(start, start + rows)
        size = len(pixels[part])
        if is_fixed and size < rows:
            # Some are given again, in a call of a fixed size.
            part, size = np.arange(start, start + rows) % len(pixels), rows
        arrays = {"images": pixels[part], "n": np.array(size, "int32")}
        arrays["capsule"] = np.array(k % getattr(model, "capsules", 1), "int32")
        if codes is not None:
            arrays["capsules"] = codes[part]
        yield {spec.name: arrays.get(spec.name, _drawn(spec, size, random)) for spec in inputs}


def _drawn(spec, rows, random):
    """Return random numbers for an input that replaces those of a sampler."""
    shape = [rows if size is None else size for size in spec.shape]
    draw = random.standard_normal if spec.name.startswith("normal") else random.random
    return np.asarray(draw(shape), "float32")


def differences(kind, content, name, function, given, images):
    """Return how the outputs of a file differ from those of the model, on held-out images.

    Args:
        kind: str, the format.
        content: bytes of the file.
        name: str, the endpoint.
        function: `tf.function` of its inputs.
        given: Function of `"held_out"` that yields inputs.
        images: `Images`, whose labels give an accuracy.

    Returns:
        Dict by output: root of the mean squared difference as a share of that of the output,
        `{"relative": float}`, or for integers the share that is equal, `{"equal": float}`. With
        labels and an output `classes`, also `"accuracy"` of the model and of the file.
    """
    import tensorflow as tf

    run = _RUNNERS[kind](content, name)
    pairs: dict[str, list] = {}
    for values in given("held_out"):
        wanted = function(**{key: tf.constant(value) for key, value in values.items()})
        found = run(values)
        for key, value in wanted.items():
            pairs.setdefault(key, []).append((np.asarray(value), np.asarray(found[key])))
    result = {}
    for key, arrays in pairs.items():
        wanted, found = (np.concatenate(parts) for parts in zip(*arrays))
        if wanted.dtype.kind != "f":
            result[key] = {"equal": float(np.mean(wanted == found))}
            if key == "classes" and images.labels is not None:
                n = len(images.labels)
                result[key]["accuracy"] = float(np.mean(wanted[:n] == images.labels))
                result[key]["accuracy_of_file"] = float(np.mean(found[:n] == images.labels))
            continue
        size = np.sqrt(np.mean(np.square(wanted, dtype="float64")))
        gap = np.sqrt(np.mean(np.square(np.subtract(found, wanted, dtype="float64"))))
        result[key] = {"relative": float(gap / max(size, 1e-12))}
    return result


def difference_words(found):
    """Return the `differences` of a call as text.

    >>> difference_words({"classes": {"equal": 0.995}, "capsules": {"relative": 0.0123}})
    'classes 99.5% equal, capsules differ by 1.2%'
    """
    parts = []
    for name, value in found.items():
        if "relative" in value:
            parts.append(f"{name} differ by {value['relative']:.1%}")
            continue
        parts.append(f"{name} {value['equal']:.1%} equal")
        if "accuracy" in value:
            parts.append(f"accuracy {value['accuracy_of_file']:.2%} for {value['accuracy']:.2%}")
    return ", ".join(parts)


def run_onnx(content, name):
    """Return a function of a dict of inputs that runs an ONNX model, bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    asked = {each.name for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]

    def run(values):
        values = {key: value for key, value in values.items() if key in asked}
        return dict(zip(names, session.run(None, values)))

    return run


def run_litert(content, name):
    """Return a function of a dict of inputs that runs a LiteRT model, bytes."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        # TensorFlow's own, which it is about to move into the package above.
        from tensorflow.lite import Interpreter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Kept by the function: a runner does not keep its interpreter.
        interpreter = Interpreter(model_content=content)
    runner = interpreter.get_signature_runner(name)
    asked = runner.get_input_details()

    def run(values, interpreter=interpreter):
        return runner(**{key: value for key, value in values.items() if key in asked})

    return run


_RUNNERS = {"onnx": run_onnx, "litert": run_litert}


def smaller_onnx(model, precision, given):
    """Return an ONNX model with float16 or int8 numbers.

    Weights of float16 are converted when a program loads them. With int8, convolutions and products
    of matrices compute with integers, and other weights are converted back to float32.

    Args:
        model: `onnx.ModelProto`.
        precision: str, one of `PRECISIONS`.
        given: Function of `"calibration"` that yields inputs.
    """
    return with_smaller_weights(_static(model, given) if precision == "int8" else model, precision)


def with_smaller_weights(model, precision, largest=127):
    """Return an ONNX model in float32 that stores weights in float16, or int8 up to `largest`."""
    nodes, kept = [], []
    for weight in model.graph.initializer:
        pieces = _smaller_weight(weight, precision, largest)
        kept += pieces[0]
        nodes += pieces[1]
    rest = list(model.graph.node)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend([*nodes, *rest])
    model.graph.initializer.extend(kept)
    return model


def _smaller_weight(weight, precision, largest):
    """Return the arrays and the nodes that give a float32 array of an ONNX graph."""
    import onnx
    from onnx import numpy_helper

    is_float = weight.data_type == onnx.TensorProto.FLOAT
    values = numpy_helper.to_array(weight) if is_float else np.zeros(0)
    if values.size < _SMALL or not np.isfinite(values).all():
        return [weight], []
    name, small = weight.name, f"{weight.name}_{precision}"
    if precision == "float16":
        if np.abs(values).max() > _HALF:
            return [weight], []
        half = numpy_helper.from_array(values.astype("float16"), small)
        cast = onnx.helper.make_node("Cast", [small], [name], to=onnx.TensorProto.FLOAT)
        return [half], [cast]
    # One scale for each place of the last axis.
    scale = np.abs(values).max(axis=tuple(range(values.ndim - 1))) / largest
    scale = np.where(scale > 0, scale, 1).astype("float32")
    whole = np.round(values / scale).astype("int8")
    arrays = [
        numpy_helper.from_array(whole, small),
        numpy_helper.from_array(scale, f"{name}_scale"),
        numpy_helper.from_array(np.zeros(scale.shape, "int8"), f"{name}_zero"),
    ]
    names = [array.name for array in arrays]
    node = onnx.helper.make_node("DequantizeLinear", names, [name], axis=values.ndim - 1)
    return arrays, [node]


def _static(model, given):
    """Return an ONNX model whose convolutions and products of matrices compute with int8."""
    import onnx
    from onnxruntime import quantization

    names = [each.name for each in model.graph.input]

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.batches = iter(given("calibration"))

        def get_next(self):
            values = next(self.batches, None)
            return values and {key: values[key] for key in names}

    with tempfile.TemporaryDirectory() as folder:
        before, after = (os.path.join(folder, name) for name in ("float.onnx", "int8.onnx"))
        onnx.save(onnx.shape_inference.infer_shapes(model), before)
        quantization.quantize_static(
            before,
            after,
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "MatMul", "Gemm"],
            per_channel=True,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        small = onnx.load(Path(after))
        # Sizes of what lies between, which quantisation needed, are much of a small file.
        del small.graph.value_info[:]
        return small


# Operations of LiteRT that compute with int8: they have most of the weights and take most of the
# time. In routing, rounding errors would multiply.
_INT8 = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
# Others that LiteRT can quantise, and must not.
_FLOAT = """
    ABS ADD ARG_MAX BATCH_MATMUL BROADCAST_TO CAST CONCATENATION DIV EQUAL EXP EXPAND_DIMS FILL
    GATHER GREATER GREATER_EQUAL LESS LESS_EQUAL LOG LOGISTIC LOG_SOFTMAX MAXIMUM MEAN MINIMUM MUL
    NEG NOT_EQUAL PACK POW PRELU REDUCE_MAX REDUCE_MIN RELU RESHAPE RSQRT SCATTER_ND SELECT
    SELECT_V2 SLICE SOFTMAX SPLIT SQRT SQUARE SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM TANH
    TILE TOPK_V2 TRANSPOSE UNPACK
"""
# Kernels of int8 take channels in groups of eight, so that fewer are slower than in float32.
_CHANNELS = 8


def smaller_litert(calibrated):
    """Return a LiteRT model with int8 numbers, bytes, from one with ranges of its activations.

    Convolutions and layers of matrices compute with integers. Weights of products of several
    matrices are converted to float32 when a program loads them.
    """
    from tensorflow.lite.python.convert import mlir_quantize
    from tensorflow.lite.tools import flatbuffer_utils as flat

    model, left_out = flat.read_model_from_bytearray(bytearray(calibrated)), []
    for graph in model.subgraphs:
        quantized = set()
        for operator in graph.operators:
            if _operation(model, operator) in _INT8:
                if graph.tensors[operator.inputs[1]].shape[-1] < _CHANNELS:
                    left_out.append(graph.tensors[operator.outputs[0]].name.decode())
                else:
                    quantized |= {*map(int, operator.inputs), *map(int, operator.outputs)}
        # A tensor without a range is not quantised. Else choices, such as of 1 in place of a zero,
        # would give the range of the 1 to all other numbers.
        for index, tensor in enumerate(graph.tensors):
            if index not in quantized:
                tensor.quantization = None
    kept = bytes(flat.convert_object_to_bytearray(model))
    content = mlir_quantize(kept, denylisted_ops=_FLOAT.split(), denylisted_nodes=left_out)
    model = flat.read_model_from_bytearray(bytearray(content))
    for graph in model.subgraphs:
        _convert_weights(model, graph)
    return bytes(flat.convert_object_to_bytearray(model))


def _operation(model, operator):
    """Return the name of an operation of a LiteRT model."""
    from tensorflow.lite.tools import flatbuffer_utils as flat

    return flat.opcode_to_name(model, operator.opcodeIndex)


def _convert_weights(model, graph):
    """Store float32 weights of a graph of a LiteRT model as int8, and convert them when loaded."""
    from tensorflow.lite.python import schema_py_generated as schema

    products = [each for each in graph.operators if _operation(model, each) == "BATCH_MATMUL"]
    for index in sorted({int(index) for each in products for index in each.inputs}):
        weight = graph.tensors[index]
        data = model.buffers[weight.buffer].data
        if weight.type != schema.TensorType.FLOAT32 or data is None or len(data) < 4 * _SMALL:
            continue
        values = np.frombuffer(bytes(data), "float32")
        scale = float(np.abs(values).max()) / 127 or 1.0
        small = schema.TensorT()
        small.shape, small.name = weight.shape, weight.name + b"_int8"
        small.type, small.buffer = schema.TensorType.INT8, len(model.buffers)
        small.quantization = schema.QuantizationParametersT()
        small.quantization.scale, small.quantization.zeroPoint = [scale], [0]
        buffer = schema.BufferT()
        whole = np.round(values / scale).astype("int8")
        buffer.data = np.frombuffer(whole.tobytes(), "uint8")
        model.buffers.append(buffer)
        graph.tensors.append(small)
        # Buffer 0 is the empty one: an operation fills the tensor now.
        weight.buffer = 0
        convert = schema.OperatorT()
        convert.opcodeIndex = _code(model, schema.BuiltinOperator.DEQUANTIZE)
        convert.inputs, convert.outputs = [len(graph.tensors) - 1], [index]
        graph.operators.insert(0, convert)
    used = {tensor.buffer for each in model.subgraphs for tensor in each.tensors}
    used |= {each.buffer for each in model.metadata or ()}
    for index, buffer in enumerate(model.buffers):
        if index not in used:
            buffer.data = None


def _code(model, operation):
    """Return the index of an operation among the codes of a LiteRT model, which may get it."""
    from tensorflow.lite.python import schema_py_generated as schema

    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == operation:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = operation
    code.version = 2
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1
