"""The table of all families: each model's own rows, and what is shared from the first file."""

import importlib
from pathlib import Path


def test_rows_and_cells(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks" / "research")
    research = importlib.import_module("families")
    shared = {"real": {"recognised": 0.75}, "full_gaussian": {"frechet": 44.3}}
    files = [
        ("a", {"samples": {**shared, "visited": {"recall": 0.5, "modal_classes": 9}}}),
        ("b", {"samples": {"real": {"recognised": 0.1}, "joint": {"coverage": 1.0}}}),
    ]
    lines = research.table(research.rows(files))
    assert lines[2:] == [
        "| real | 0.750 | - | - | - | - | - | - |",
        "| a, visited | - | - | 9 | - | - | 0.500 | - |",
        "| b, joint | - | - | - | - | - | - | 1.00 |",
        "| full gaussian | - | - | - | 44.3 | - | - | - |",
    ]
