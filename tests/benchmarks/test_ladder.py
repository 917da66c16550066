"""The ladder from the plain form to the default: its rungs are all of what lies between."""

import doctest
import json
from pathlib import Path

import _cells
import ladder
import pytest

from keras_capsule_poe.training.settings import read_toml

ROWS = ladder.rows()


def test_every_row_can_be_trained():
    for row in ROWS.values():
        ladder.config_of(*row).check()


def test_the_last_rung_is_the_default():
    """Rejects a ladder without one of the departures, or with one that the recipes do not have."""
    plain = ladder.config_of(ladder.PLAIN, {})
    default = ladder.config_of(ladder.DEFAULT, {})
    *_, last = ladder.DEPARTURES
    left = ladder.config_of(*ROWS[f"+ {last}"]).differences(default)
    assert set(left) <= set(default.idle())
    named = " ".join(ladder.DEPARTURES.values()).split()
    assert sorted(named) == sorted(default.differences(plain))


def test_no_two_rows_are_the_same():
    seen = [
        json.dumps(ladder.config_of(*row).to_dict() | {"preset": None}) for row in ROWS.values()
    ]
    assert len(set(seen)) == len(seen)


def test_the_table_has_means_and_deviations_of_what_is_there():
    done = {"a": {"0": {"x": 1.0, "y": 2.0}, "1": {"x": 2.0}}, "b": {"2": {"x": 0.25, "y": 7.0}}}
    lines = ladder.table(done, ["a", "b", "c"], [0, 1, 2], ["x", "y"]).splitlines()
    # The deviation of 1 and 2, with one degree of freedom less, is the root of a half.
    assert lines[2:] == ["| a | 2 | 1.5 ± 0.71 | - |", "| b | 1 | 0.25 | 7 |"]


def test_rows_whose_settings_changed_are_made_anew():
    recipe, settings = ROWS["default, CD-3"]
    kept, stale = (
        {"x": 1.0, "sections": ladder.sections_of(ladder.config_of(recipe, s))}
        for s in (settings, {**settings, "encoder.dim": 8})
    )
    # One setting, and one section, are newer than this row.
    older = {**kept, "sections": {k: dict(v) for k, v in kept["sections"].items()}}
    del older["sections"]["encoder"]["load_balancing"], older["sections"]["compute"]
    gone = {**kept, "sections": {**kept["sections"], "encoder": {"of_old": 1}}}
    done = {"a": {"0": kept, "1": stale, "2": older, "3": gone}, "of old": {"0": kept}}
    assert ladder.current(done, {"a": ROWS["default, CD-3"], "b": ROWS["default, CD-3"]}) == {
        "a": {"0": kept, "2": older},
        "b": {},
    }


def test_cells():
    assert doctest.testmod(_cells).failed == 0


@pytest.mark.parametrize(
    "number, names",
    [
        ("three", "competition, frames, load balancing"),
        ("four", "competition, frames, load balancing, conditional decoder"),
    ],
)
def test_the_settings_of_few_departures_are_those_of_their_row(number, names):
    """The file with which a user trains them on all images."""
    path = Path(ladder.__file__).with_name(f"{number}_departures.toml")
    recipe, settings = ROWS[f"plain form + {names}"]
    given = read_toml(path)
    assert given.pop("recipe") == recipe
    found = {f"{part}.{name}": value for part in given for name, value in given[part].items()}
    equal = {name: value for name, value in ladder.EQUAL.items() if value is not None}
    assert found == equal | settings
