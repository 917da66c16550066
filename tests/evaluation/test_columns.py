"""Runs side by side.

Rejected: a copy counted as a seed, a deviation of all numbers of a table, a mean without its number
of seeds, lines wider than the terminal.
"""

import numpy as np
import pytest

from keras_capsule_poe.evaluation.columns import columns, columns_text, differing


def record(name, seed=0, settings=None, model="rbm", finished=True, **metrics):
    return {
        "folder": f"saved_models/{name}", "name": name, "model": model, "preset": "pixels",
        "dataset": "digits", "seed": seed, "finished": finished, "seconds": 60.0 + seed,
        "warnings": None, "settings": settings or {}, "training": {}, "metrics": metrics,
    }  # fmt: skip


def runs():
    found = []
    for hidden in (4, 8):
        for seed in range(3):
            metrics = {"rbm.val_relative_error": 0.1 * hidden + 0.01 * seed, "rbm.val_loss": 1.0}
            name = f"rbm.hidden={hidden},seed={seed}"
            found.append(record(name, seed, {"rbm.hidden": hidden}, **metrics))
    return found


def test_runs_that_differ_only_in_the_seed_share_a_column():
    found = columns(runs())
    assert [column["name"] for column in found] == ["rbm.hidden=4", "rbm.hidden=8"]
    assert [column["seeds"] for column in found] == [[0, 1, 2], [0, 1, 2]]
    error = found[1]["metrics"]["rbm.val_relative_error"]
    values = [0.8, 0.81, 0.82]
    assert error["mean"] == pytest.approx(np.mean(values)) and error["seeds"] == 3
    assert error["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert differing(found) == {"rbm.hidden": [4, 8]}


@pytest.mark.parametrize(
    "other",
    [{"seed": 0}, {"seed": 1, "model": "capsules"}, {"seed": 1, "settings": {"limit": 9}}],
)
def test_copies_and_other_models_have_their_own_columns(other):
    first, second = columns([record("a", seed=0), record("b", **other)])
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["seconds"] == {"mean": 60.0, "deviation": None, "seeds": 1}


def test_a_metric_that_some_seeds_lack_says_so():
    found = columns([record("a0", 0, accuracy=0.5), record("a1", 1, finished=False)])
    assert found[0]["name"] == "a" and found[0]["unfinished"] == 1
    text = columns_text(found)
    assert "0.500 (1 of 2)" in text and "runs not finished" in text


def test_a_table_is_as_narrow_as_asked_and_holds_every_column():
    names = [f"run-of-a-long-name-{i}" for i in range(7)]
    every = [record(name, 1, {"limit": i}, accuracy=i / 8) for i, name in enumerate(names)]
    for width, tables in ((40, 7), (80, 2), (200, 1)):
        text = columns_text(columns(every), width)
        assert max(map(len, text.splitlines())) <= width
        assert text.count("Classification of test images") == tables
        assert all(f"{i / 8:.3f}" in text for i in range(1, 7))


def test_a_short_table_has_few_metrics_and_counts_the_rest():
    drawn = {"FID": 4.0, "density": 0.5}
    kinds = ("prior", "real", "whole_code", "gaussian_mixture")
    metrics = {f"samples.{kind}.{name}": v for kind in kinds for name, v in drawn.items()}
    metrics |= {"reconstruction.whole_code": 0.25, "rbm.loss": 1.0, "rbm.val_loss": 2.0}
    text = columns_text(columns([record("a", **metrics)]), more="ask")
    assert "8 more metrics: ask" in text and text.count("FID ") == 1 and "0.250" in text
    assert "Samples, prior" in text and "rbm: loss" in text
    every = columns_text(columns([record("a", **metrics)]), verbose=True)
    assert "more metrics" not in every and every.count("Density") == 4
