"""Model cards: what a stranger must know to call an exported model."""

import platform
from importlib import metadata

PACKAGES = ("keras-capsule-poe", "tensorflow", "keras", "numpy", "tensorflow-datasets")
CARD, README = "model_card.json", "README.md"

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
    "free_energy": "free energy in nats; low for likely images",
    "primary_capsules": "primary capsules, squashed",
}


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


def _kind(spec):
    shape = ["N" if size is None else size for size in spec.shape]
    return {"shape": shape, "dtype": spec.dtype.name}


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


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def card_text(card):
    """Return a model card as Markdown: how to call the model, in which language and with what."""
    height, width, channels = card["image_shape"]
    kind = card.get("format", "saved_model")
    lines = [f"# {card['model']}", ""]
    if card.get("data"):
        lines += [f"Trained on `{card['data']}`, seed {card.get('seed')}.", ""]
    colours = "1 channel" if channels == 1 else f"{channels} channels"
    lines += [f"Images have {height}x{width} pixels and {colours}, pixels in [0, 1].", ""]
    if card.get("class_names"):
        names = ", ".join(f"{i} {name}" for i, name in enumerate(card["class_names"]))
        lines += [f"Classes by index: {names}.", ""]
    lines += ["## Calls", "", "N is the number of images.", ""]
    lines += ["| call | takes | gives |", "|---|---|---|"]
    for name, call in card["calls"].items():
        takes = "<br>".join(_line(each, kind, about) for each, about in call["inputs"].items())
        gives = "<br>".join(_line(each, kind, about) for each, about in call["outputs"].items())
        lines.append(f"| `{name}` | {takes} | {gives} |")
    for name, why in card.get("left_out", {}).items():
        lines += ["", f"`{name}` is left out: {why}."]
    return "\n".join([*lines, "", *_EXAMPLES[kind](card), ""])


def _line(name, kind, about):
    shape = ", ".join(map(str, about["shape"]))
    words = about.get("range") or about.get("meaning")
    return f"`{name}` {about['dtype']} ({shape})" + (f": {words}" if words else "")


def _first(card):
    """Return the name of the first call that takes images, and one of its outputs."""
    name = next(name for name, call in card["calls"].items() if "images" in call["inputs"])
    return name, next(iter(card["calls"][name]["outputs"]))


def _saved_model_example(card):
    name, output = _first(card)
    return [
        "## Python",
        "",
        "```python",
        "import tensorflow as tf",
        "",
        'model = tf.saved_model.load(".")  # this folder; keep the reference',
        f'model.{name}(images=images)["{output}"]',
        "```",
        "",
        "Arrays of dtype uint8 are divided by 255. A wrong value or shape is an error.",
        "",
        "## REST",
        "",
        "TensorFlow Serving takes the folder above this one, which holds the versions:",
        "",
        "```sh",
        "docker run -p 8501:8501 -v MODEL_FOLDER:/models/m -e MODEL_NAME=m tensorflow/serving",
        f"""curl http://localhost:8501/v1/models/m:predict -d '{{"signature_name": "{name}", """
        """"inputs": {"images": [...]}}'""",
        "```",
        "",
        f"Without `signature_name` it calls `{next(iter(card['calls']))}`.",
    ]


def _onnx_example(card):
    name, output = _first(card)
    return [
        "## Python",
        "",
        "```python",
        "import onnxruntime",
        "",
        f'session = onnxruntime.InferenceSession("{name}.onnx")',
        f'(found,) = session.run(["{output}"], {{"images": images}})',
        "```",
        "",
        "The files do not check the ranges above: divide bytes by 255.",
    ]


def _litert_example(card):
    name, output = _first(card)
    return [
        "## Python",
        "",
        "```python",
        "from ai_edge_litert.interpreter import Interpreter",
        "",
        f'{name} = Interpreter("{name}.tflite").get_signature_runner("{name}")',
        f'{name}(images=images)["{output}"]',
        "```",
        "",
        "The files do not check the ranges above: divide bytes by 255.",
    ]


_EXAMPLES = {
    "saved_model": _saved_model_example,
    "onnx": _onnx_example,
    "litert": _litert_example,
}
