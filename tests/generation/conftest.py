"""A small model whose chains move, and whose maps are strong."""

import pytest


@pytest.fixture(scope="package")
def model(small_product):
    # Weak maps would let every chain die away to zero, where the squash has slope zero.
    return small_product(stddev=2.0, scale=1.0, target_length=0.7)
