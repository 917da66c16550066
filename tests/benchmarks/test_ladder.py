"""The ladder from the plain form to the default: its rungs are all of what lies between."""

import doctest
import json
from pathlib import Path

import _cells
import ladder
import pytest

from keras_capsule_poe.training.settings import read_toml

ROWS = ladder.rows()


def config(row, **more):
    preset, settings = ROWS[row]
    return ladder.config_of(preset, {**settings, **more})


def test_every_row_can_be_trained():
    for preset, settings in ROWS.values():
        for all_images in (False, True):
            ladder.config_of(preset, ladder.settings_of(settings, all_images)).check()


def test_the_last_departure_makes_the_last_rung_the_default():
    """Rejects a ladder without one of the departures, or with one that the presets do not have."""
    plain, default = config("plain form"), config("default")
    *rest, last = ladder.DEPARTURES.values()
    *_, rung = (name for name in ROWS if name.startswith("+ "))
    left = config(rung).differences(default)
    # The rows give batches and steps that are equal.
    lengths = set(ladder.EQUAL)
    assert set(left) - lengths - set(default.idle()) == set(last.split())
    named = " ".join([*rest, last]).split()
    assert sorted({*named, *lengths}) == sorted({*default.differences(plain), *lengths})


def test_a_row_without_a_departure_has_the_plain_value_of_its_settings():
    plain, default = config("plain form"), config("default")
    for name, settings in ladder.DEPARTURES.items():
        if f"default, no {name}" in ROWS:
            changed = set(config(f"default, no {name}").differences(default))
            assert changed and changed <= set(settings.split())
            assert not changed & set(config(f"default, no {name}").differences(plain))


def test_no_two_rows_are_the_same():
    seen = [json.dumps(config(row, **ladder.EQUAL).to_dict() | {"preset": None}) for row in ROWS]
    assert len(set(seen)) == len(seen)


def test_the_table_has_means_and_deviations_of_what_is_there():
    done = {"a": {"0": {"x": 1.0, "y": 2.0}, "1": {"x": 2.0}}, "b": {"2": {"x": 0.25, "y": 7.0}}}
    lines = ladder.table(done, ["a", "b", "c"], [0, 1, 2], ["x", "y"]).splitlines()
    # The deviation of 1 and 2, with one degree of freedom less, is the root of a half.
    assert lines[2:] == ["| a | 2 | 1.5 ± 0.71 | - |", "| b | 1 | 0.25 | 7 |"]


def test_rows_whose_settings_changed_are_made_anew():
    preset, settings = ROWS["default, CD-3"]
    kept, stale, whole = (
        {"x": 1.0, "sections": ladder.sections_of(ladder.config_of(preset, given))}
        for given in (
            ladder.settings_of(settings),
            ladder.settings_of({**settings, "encoder.dim": 8}),
            settings,
        )
    )
    # One setting, and one section, are newer than this row.
    older = {**kept, "sections": {k: dict(v) for k, v in kept["sections"].items()}}
    del older["sections"]["encoder"]["load_balancing"], older["sections"]["compute"]
    gone = {**kept, "sections": {**kept["sections"], "encoder": {"of_old": 1}}}
    done = {"a": {"0": kept, "1": stale, "2": older, "3": gone, "4": whole}}
    done["of old"] = {"0": kept}
    assert ladder.current(done, {"a": ROWS["default, CD-3"], "b": ROWS["default, CD-3"]}) == {
        "a": {"0": kept, "2": older},
        "b": {},
    }
    found = ladder.current(done, {"a": ROWS["default, CD-3"]}, all_images=True)
    assert found == {"a": {"4": whole}}


def test_cells():
    assert doctest.testmod(_cells).failed == 0


@pytest.mark.parametrize(
    "number, names",
    [
        ("three", "competition, whitening, load balancing"),
        ("four", "competition, whitening, load balancing, conditional decoder"),
    ],
)
def test_the_files_of_few_departures_set_these_to_values_of_the_default(number, names):
    """The file with which a user trains them on all images."""
    given = read_toml(Path(ladder.__file__).with_name(f"{number}_departures.toml"))
    assert given.pop("recipe") == ladder.PLAIN
    found = {f"{part}.{name}": value for part in given for name, value in given[part].items()}
    expected = " ".join(ladder.DEPARTURES[name] for name in names.split(", ")).split()
    assert set(found) - set(ladder.EQUAL) == set(expected)
    default = ladder.sections_of(config("default", **ladder.EQUAL))
    former = {"encoder.coefficient_sum": 5.0, "decoder.weight_decay": 1e-4}
    for name, value in found.items():
        part, setting = name.split(".")
        assert value == former.get(name, default[part][setting]), name
