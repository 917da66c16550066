"""Codes in the charts of affine capsules: figures of what is a plain Gaussian, and what is not.

Rejected: codes on the far side of a pole, whose coordinates are those of their negatives; capsules
that win next to nothing.
"""

import doctest

import chart_spread
import charts
import numpy as np
import pytest
from keras import ops

POLES = np.eye(3, 6)


class Model:
    """Its images are codes."""

    poles = POLES

    def encode(self, codes):
        return {"capsules": codes, "probabilities": ops.norm(codes, axis=-1)}


def test_examples():
    for module in (chart_spread, charts):
        assert doctest.testmod(module).failed == 0


def test_a_plain_gaussian_in_a_chart_is_found_there():
    random = np.random.default_rng(0)
    codes = np.zeros((40_001, 3, 6))
    scale = np.array([1.0, 1, 1, 1, 3])
    for capsule, part in enumerate((slice(0, 20_000), slice(20_000, 40_000))):
        r = scale**capsule * random.normal(size=(20_000, 5))
        codes[part, capsule] = charts.of_chart(r, POLES[capsule])
    # A quarter of the first capsule's lie on the other side.
    codes[:5000, 0] *= -1
    codes[-1, 2, 0] = 1
    found = chart_spread.row(Model(), codes)
    assert found["capsules"] == 2
    assert found["near_pole"] == pytest.approx((0.75 + 1) / 2)
    # 15,000 draws: deviations are known to half a percent, and are means of two capsules.
    assert found["median"] == pytest.approx(1, abs=0.02)
    assert found["largest"] == pytest.approx((1 + 3) / 2, abs=0.05)
    assert found["dimensions"] == pytest.approx((5 + 13**2 / (4 + 81)) / 2, abs=0.05)
    assert found["mean"] < 0.05
