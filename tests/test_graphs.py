"""Graphs are traced from functions as they are written: AutoGraph took longer than all the rest.

Rejected: a `tf.function` in the package that leaves it on.
"""

import ast
from pathlib import Path

import keras_capsule_poe

ROOT = Path(keras_capsule_poe.__path__[0])


def test_no_function_is_translated_by_autograph():
    calls = [
        (path.name, node.lineno, {word.arg: ast.unparse(word.value) for word in node.keywords})
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tf.function"
    ]
    assert calls
    assert [call for call in calls if call[2].get("autograph") != "False"] == []
