"""Rows drawn a part at a time: as many as asked for, in their places, few at once."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe.core.sharding import in_parts


def numbered(counts):
    """Rows that say of which part they are, and where in it; `counts` gets its rows."""

    def draw(part, count):
        counts.append(count)
        where = ops.cast(ops.arange(count), "float32")
        return ops.stack([ops.full_like(where, ops.cast(part, "float32")), where], axis=1)

    return draw


@pytest.mark.parametrize("n, parts", [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (12, 3)])
def test_parts_are_even_and_no_larger_than_they_may_be(n, parts):
    counts = []
    rows = np.asarray(in_parts(numbered(counts), n, 4, (2,)))
    assert rows.shape == (n, 2)
    # Of several parts one graph is made.
    assert len(counts) == min(parts, 1) and all(count <= 4 for count in counts)
    length = -(-n // max(parts, 1))
    np.testing.assert_array_equal(rows[:, 0], np.arange(n) // max(length, 1))
    np.testing.assert_array_equal(rows[:, 1], np.arange(n) % max(length, 1))


def test_in_a_graph_the_number_may_be_a_tensor():
    draw = tf.function(
        lambda n: in_parts(numbered([]), n, 4, (2,)),
        input_signature=[tf.TensorSpec((), "int32")],
    )
    for n in (0, 1, 4, 9):
        np.testing.assert_array_equal(draw(n), in_parts(numbered([]), n, 4, (2,)))
