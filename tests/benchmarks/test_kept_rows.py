"""Kept rows are of the settings that recipes and commands have, and agree with their images."""

import json
from argparse import Namespace
from pathlib import Path

import _classifiers as shared
import _shares as shares
import affnist
import classifiers
import em_ablation
import ladder
import pytest
import routing_iterations
import start
from _kept import is_of

ROWS = Path(__file__).parents[2] / "docs" / "benchmarks"
KEPT = sorted(ROWS.glob("**/rows.json"))
STARTS = sorted(ROWS.glob("start/*.json"))


def words(name):
    """The arguments of the command that made some rows."""
    command = json.loads((ROWS / "sources.json").read_text())[name]["command"]
    return command.split(".py ")[1].split()


def test_a_row_says_what_its_images_say():
    cases = [case for path in KEPT for case in json.loads(path.read_text()).values()]
    for figures in (each for seeds in cases for each in seeds.values()):
        names = [name.removesuffix("_right") for name in figures if name.endswith("_right")]
        assert names
        for name in names:
            assert figures[name] == shares.unpacked(figures, name).mean()


def test_rows_of_classifiers_are_of_the_settings_that_there_are():
    """Else all would be measured anew: a setting that is newer than a row had its default."""
    rows = shared.Rows(ROWS / "classifiers", measures=False)
    args = Namespace(set=[], epochs=None, limit=None)
    assert rows.rows
    for case, seeds in rows.rows.items():
        for seed, figures in seeds.items():
            config = classifiers.case_of(args, case, int(seed))
            assert rows.figures(case, config, classifiers.judge) == figures
            config.set("split", "azimuth")
            assert rows.figures(case, config, classifiers.judge) is None


def test_rows_of_affine_digits_are_of_their_command():
    rows = shared.Rows(ROWS / "affnist", measures=False)
    args = affnist.arguments(words("affnist/rows.json"))
    changed = {**affnist.settings(args), **shared.MODELS["capsules"]}
    for seed, figures in rows.rows["capsules"].items():
        config = shared.config_of(args, "mnist_translated", args.recipe, changed, int(seed))
        found = rows.figures("capsules", config, affnist.judge, args.dataset, args.manual_dir)
        assert found == figures


def test_rows_of_the_em_ablation_are_of_their_command():
    rows = shared.Rows(ROWS / "em_ablation" / "mnist", measures=False)
    assert list(rows.rows) == list(em_ablation.ROWS)
    args = em_ablation.arguments(words("em_ablation/mnist/rows.json"))
    for row, seeds in rows.rows.items():
        for seed, figures in seeds.items():
            config = em_ablation.config_of(args, row, int(seed))
            assert rows.figures(row, config, em_ablation.judge) == figures


def test_rows_of_routing_iterations_are_of_their_command():
    name = "routing_iterations/mnist/small/routing_iterations.json"
    done = json.loads((ROWS / name).read_text())
    found = routing_iterations.current(done, routing_iterations.arguments(words(name)))
    assert all(len(seeds) == 3 for seeds in found.values())
    assert list(found) == list(done)


@pytest.mark.parametrize("dataset", ["fashion_mnist", "mnist"])
@pytest.mark.parametrize("ending, all_images", [("", False), ("-all", True)])
def test_rows_of_the_ladder_are_of_its_settings(ending, all_images, dataset):
    done = json.loads((ROWS / "ladder" / f"{dataset}{ending}.json").read_text())
    found = ladder.current(done, ladder.rows(), all_images)
    assert set(done) <= set(found)
    assert all(found[name] == seeds for name, seeds in done.items())


def test_rows_of_the_start_are_of_its_settings():
    assert len(STARTS) == 3
    for path in STARTS:
        for name, seeds in json.loads(path.read_text()).items():
            for figures in seeds.values():
                assert is_of(figures["sections"], start.config_of(name)), path
