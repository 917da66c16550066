"""Figures over seeds, and tables."""

import pytest

from keras_capsule_poe.evaluation.report import over_seeds, tables


def figures(purity=0.9, accuracy=0.5):
    """Figures as `measured` gives them."""
    judged = {
        "recognised": 0.9,
        "modal_classes": 9,
        "purity": purity,
        "coverage": 0.5,
        "frechet": 4.0,
    }
    return {
        "reconstruction": {"primary_capsules": 0.1},
        "probe": {"capsules": 0.97, "pixels": 0.9},
        "neighbours": {},
        "clustering": {
            "merged_capsules": {"accuracy": accuracy, "nmi": 0.9},
            "graph": {"accuracy": 0.4, "nmi": 0.95},
        },
        "samples": {
            "classifier_accuracy": 0.99,
            "real": {**judged, "coverage": 1.0},
            **{name: judged for name in ("visited", "complete", "joint")},
            "full_gaussian": {"frechet": 16.0},
            "gaussian_mixture": {"frechet": 5.0},
        },
    }


def test_over_seeds_gives_mean_and_deviation():
    runs = [figures(purity=p) for p in (0.7, 0.8, 0.9)]
    found = over_seeds(runs)["samples"]["visited"]
    assert found["purity"] == pytest.approx((0.8, 0.1))
    assert found["recognised"] == pytest.approx((0.9, 0))
    assert over_seeds(runs[:1]) is runs[0]


def test_tables_hold_every_figure():
    found = {heading: (columns, rows) for heading, _, columns, rows in tables([figures()])}
    assert found["Reconstruction"] == (["value"], [("Primary capsules", 0.1)])
    assert found["Neighbours"][1] == []
    columns, rows = found["Samples"]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["Visited"][columns.index("Purity")] == 0.9
    assert by_name["Full gaussian"][columns.index("Purity")] is None
    assert by_name["Classifier accuracy"] == (0.99,)
