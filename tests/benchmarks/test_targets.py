"""The targets of the paper's data sets."""

import numpy as np
import pytest
import targets
from targets import target_rows


def test_targets_are_of_the_data_set(figures):
    rows = {what: (value, reached) for what, value, _, reached in target_rows("mnist", figures())}
    assert rows["coverage, posterior, of that of real images"] == (0.5, "yes")
    assert rows["Frechet distance, posterior over full Gaussian"] == (0.25, "yes")
    assert rows["Frechet distance, joint over Gaussian mixture"] == (pytest.approx(0.8), "yes")
    assert rows["linear probe of capsules"] == (0.97, "yes")
    assert rows["clustering by merged capsules, accuracy"] == (0.5, "no")
    assert rows["clustering by merged capsules, NMI"] == (0.9, "yes")
    other = {what for what, *_ in target_rows("fashion_mnist", figures())}
    assert "linear probe of capsules" not in other
    assert "linear probe of capsules, over raw pixels" in other
    assert target_rows("digits", figures()) == []
    low = {what: reached for what, *_, reached in target_rows("mnist", figures(purity=0.79))}
    assert low["mean purity of a column, posterior"] == "no"


def test_targets_over_seeds_count_the_models_that_reach_them(figures):
    runs = [figures(purity=p) for p in (0.7, 0.9)]
    rows = {row[0]: row[1:] for row in targets.table_of("mnist", runs)[1]}
    value, target, reached = rows["mean purity of a column, posterior"]
    assert value == pytest.approx((0.8, np.sqrt(0.02)))
    assert (target, reached) == ("at least 0.81", "1 of 2")
