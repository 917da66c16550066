"""The table of all families."""

import importlib
from pathlib import Path


def test_cells(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks" / "research")
    research = importlib.import_module("families")
    figures = {"recognised": 0.75, "modal_classes": 9, "frechet": 44.31, "coverage": None}
    assert research.line("real", figures) == "| real | 0.750 | - | 9 | 44.3 | - | - | - |"
    assert len(research.COLUMNS) == research.line("real", {}).count("-")
