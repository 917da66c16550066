"""What the library says: what and why, never a flag; the command line knows what mends it."""

import ast
import re
from pathlib import Path

import keras_capsule_poe
from keras_capsule_poe.cli.terminal import HINTS

PACKAGE = Path(keras_capsule_poe.__file__).parent
# Rooms whose text names no flag.
SILENT = (
    "errors.py",
    "losses.py",
    "metrics.py",
    "callbacks.py",
    "registry.py",
    "functions.py",
    "plotting.py",
    "charts.py",
    "figures.py",
    "serving.py",
    "sklearn",
    "core",
    "data",
    "distributed",
    "evaluation",
    "io",
    "layers",
    "models",
    "training",
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def sources(*rooms):
    """(path, syntax tree) of each file in `rooms`, all of the library by default."""
    for room in rooms or sorted(entry.name for entry in PACKAGE.iterdir()):
        path = PACKAGE / room
        for file in [path] if path.suffix == ".py" else sorted(path.rglob("*.py")):
            yield file.relative_to(PACKAGE), ast.parse(file.read_text())


def texts(node):
    """The strings in a part of a program."""
    constants = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return [value for value in constants if isinstance(value, str)]


def test_the_library_names_no_flag():
    found = {
        f"{path}: {FLAG.search(text)[0]}"
        for path, tree in sources(*SILENT)
        for text in texts(tree)
        if FLAG.search(text)
    }
    assert not found


def test_what_mends_an_error_is_known_to_the_command_line():
    unknown = {
        f"{path}: {text}"
        for path, tree in sources()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "hint"
        # Of f"leave_out:{name}", the constant part.
        for text in texts(keyword.value)
        if text.partition(":")[0] not in HINTS
    }
    assert not unknown
