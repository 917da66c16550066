"""Figures as text."""

import numpy as np
import pytest

from keras_capsule_poe.evaluation.page import cell, text_table


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "-"),
        ("name", "name"),
        (12345, "12345"),
        (np.int64(7), "7"),
        (0.5, "0.500"),
        (np.float32(0.1), "0.100"),
        (0.000123456, "0.000123"),
        (0.0000123456, "1.23e-05"),
        (123.456, "123"),
        (999.7, "1000"),
        (-1234.5, "-1230"),
        (1.23456e7, "1.23e+07"),
        (0.0, "0.00"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ((12.345, 0.0678), "12.3 ± 0.0678"),
        ([1.0, None], "1.00 ± -"),
    ],
)
def test_cells(value, text):
    assert cell(value) == text


def test_columns_are_aligned():
    rows = [("frechet", 12.345, (0.5, 0.01)), ("classes", 7), ("a long name", None, "x")]
    assert text_table(["visited", "real"], rows).split("\n") == [
        "             visited            real",
        "frechet         12.3  0.500 ± 0.0100",
        "classes            7               -",
        "a long name        -               x",
    ]


def test_a_table_without_rows_is_its_header():
    assert text_table(["a", "b"], []) == "  a  b"


def test_values_without_a_column_are_refused():
    with pytest.raises(ValueError, match="at most 1 values"):
        text_table(["a"], [("name", 1, 2)])
