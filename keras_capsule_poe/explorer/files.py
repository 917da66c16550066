"""ONNX files of a model for the playground: small, with one input each."""

import functools

from keras_capsule_poe.portable import onnx_content
from keras_capsule_poe.serving import signature


def write_files(model, folder):
    """Write an ONNX file for each deterministic function of a model; return names of files."""
    written = {}
    for name, (method, argument) in functions_of(model).items():
        # The first picture waits for the weights of `decode`; they are a quarter as large, and
        # their rounding cannot be seen.
        precision = "int8" if name == "decode" else "float16"
        content = onnx_content(method, signature(model, [argument]), precision)
        written[name] = f"{name}.onnx"
        (folder / written[name]).write_bytes(content)
    return written


def functions_of(model):
    """Return {name: (function of a tensor that returns a dict, name of its argument)}."""
    found = {}
    has_codes = hasattr(model, "render") and getattr(model, "dim", 0)
    if "classify" in model.ENDPOINTS:
        found["classify"] = (lambda images: model.classify(images), "images")
    if "encode" in model.ENDPOINTS:
        found["encode"] = (functools.partial(_encode, model), "images")
    if has_codes and {"decode", "reconstruct"} & set(model.ENDPOINTS):
        found["decode"] = (functools.partial(_decode, model), "capsules")
    if getattr(model, "routing_places", None):
        found["routing"] = (lambda images: model.routing_steps(images), "images")
    if "meanfield" in getattr(model, "CHAINS", ()):
        found["step"] = (functools.partial(_step, model), "images")
    return found


def _encode(model, images):
    code = model.code(images) if hasattr(model, "code") else model.encode(images)
    names = ("capsules", "probabilities", "free_energy")
    return {name: code[name] for name in names if name in code}


def _decode(model, capsules):
    return {"images": model.render(capsules)["images"]}


def _step(model, images):
    return {"images": model.from_visible(model.chain_step(model.to_visible(images)))}
