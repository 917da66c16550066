"""The rows of the likelihood's table, of a small model."""

import argparse

import capsule_likelihood as likelihood
import numpy as np
import pytest

from keras_capsule_poe.models.capsule_poe.product import visible


@pytest.mark.long
@pytest.mark.parametrize("base, routing", [("ball", "routed"), ("gaussian", "fixed")])
def test_rows(base, routing, small_product, random_pixels):
    model = small_product()
    x = visible(model, random_pixels(8))
    args = argparse.Namespace(chains=200, temperatures=5, blocks=4)
    row = likelihood.row(model, x, x, base, routing, args)
    assert list(row) == likelihood.COLUMNS
    assert all(np.isfinite(value) for value in list(row.values())[2:])
    # Both sides of a small model agree, and the gain is over their middle.
    assert abs(row["width"]) < 5 * np.hypot(row["forward_error"], row["reverse_error"]) + 0.05
    middle = (row["forward"] + row["reverse"]) / 2
    assert row["gain"] == pytest.approx(row["data_log_w"] - middle, abs=1e-6)
