"""What the documents say of kept rows is what the rows say."""

import itertools
import json
import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "research"))
import _classifiers as shared
import _shares as shares
import affnist
import classifiers
import detail
import em_ablation
import ladder
import routing_iterations
import viewpoints
from _kept import is_of

sys.path.pop(0)

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "docs" / "benchmarks").glob("**/rows.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_a_row_says_what_its_images_say(path):
    for seeds in json.loads(path.read_text()).values():
        for figures in seeds.values():
            names = [name.removesuffix("_right") for name in figures if name.endswith("_right")]
            assert names
            for name in names:
                assert figures[name] == shares.unpacked(figures, name).mean()


def test_the_table_of_classifiers_has_their_figures():
    text = (ROOT / "docs" / "classifiers.md").read_text()
    rows = json.loads((ROOT / "docs" / "benchmarks" / "classifiers" / "rows.json").read_text())
    for case, seeds in rows.items():
        shown = re.findall(rf"\| `{re.escape(case)}` \|[^\n]*", text)
        for figures in seeds.values():
            held_out = f"{100 * figures['held_out']:.2f}"
            assert any(held_out in line and shares.share(figures, "test") in line for line in shown)


@pytest.mark.parametrize(
    "folder, name", [("pairs", "pairs"), ("pairs_muon", "pairs"), ("cifar", "test")]
)
def test_the_page_has_the_shares_of_comparisons(folder, name):
    text = (ROOT / "docs" / "classifiers.md").read_text()
    rows = json.loads((ROOT / "docs" / "benchmarks" / folder / "rows.json").read_text())
    for seeds in rows.values():
        for figures in seeds.values():
            assert shares.share(figures, name) in text


def test_the_page_has_the_figures_and_the_commands_of_affine_digits():
    text = (ROOT / "docs" / "classifiers.md").read_text()
    rows = shared.Rows(ROOT / "docs" / "benchmarks" / "affnist", measures=False)
    commands = re.findall(r"^python benchmarks/research/affnist.py (FOLDER .+)$", text, re.M)
    left = {(model, int(seed)) for model, seeds in rows.rows.items() for seed in seeds}
    for args in (affnist.arguments(command.split()) for command in commands):
        settings = affnist.settings(args)
        for model, seed in itertools.product(args.models, args.seeds):
            changed = {**settings, **shared.MODELS[model]}
            config = shared.config_of(args, "mnist_translated", args.recipe, changed, seed)
            figures = rows.figures(model, config, affnist.judge, args.dataset, args.manual_dir)
            for name in ("translated", "affNIST-like"):
                assert shares.share(figures, name) in text
            assert f"| {100 * figures['held_out']:.2f} |" in text
            left.remove((model, seed))
    assert not left


@pytest.mark.parametrize("split", ["azimuth", "elevation"])
def test_the_page_has_the_tables_of_novel_viewpoints(split):
    path = ROOT / "docs" / "benchmarks" / "viewpoints" / split / "rows.json"
    figures = dict(sorted(json.loads(path.read_text()).items()))
    tables = viewpoints.report(figures, until=0.96).split("\n\n")
    text = (ROOT / "docs" / "matrix-capsules.md").read_text()
    assert len(tables) > 2 and all(table in text for table in tables[:2])


def test_the_page_has_the_table_of_the_ablation():
    folder = ROOT / "docs" / "benchmarks" / "em_ablation" / "mnist"
    rows = shared.Rows(folder, measures=False)
    assert list(rows.rows) == list(em_ablation.ROWS)
    text = (ROOT / "docs" / "matrix-capsules.md").read_text()
    assert f"\n\n{em_ablation.table(rows.rows)}\n\n" in text
    (command,) = re.findall(r"`python benchmarks/research/em_ablation.py (FOLDER .+)`", text)
    args = em_ablation.arguments(command.split())
    for row, seeds in rows.rows.items():
        for seed, figures in seeds.items():
            config = em_ablation.config_of(args, row, int(seed))
            assert rows.figures(row, config, em_ablation.judge) == figures


def test_the_page_has_the_tables_of_iterations():
    folder = ROOT / "docs" / "benchmarks" / "routing_iterations"
    text = (ROOT / "docs" / "classifiers.md").read_text()
    (command,) = re.findall(
        r"`python benchmarks/research/routing_iterations.py (FOLDER .+?)`", text
    )
    args = routing_iterations.arguments(command.split())
    kept = folder / args.dataset / args.recipe / "routing_iterations.json"
    found = routing_iterations.current(json.loads(kept.read_text()), args)
    assert all(len(seeds) == 3 for seeds in found.values())
    tables = [part for part in routing_iterations.report(found).split("\n\n") if part[0] == "|"]
    assert len(tables) == 3 and all(table in text for table in tables)


def test_rows_are_of_the_settings_that_there_are():
    """Else all would be measured anew: a setting that is newer than a row had its default."""
    folder = ROOT / "docs" / "benchmarks" / "classifiers"
    rows, args = shared.Rows(folder, measures=False), Namespace(set=[], epochs=None, limit=None)
    assert rows.rows
    for case, seeds in rows.rows.items():
        for seed, figures in seeds.items():
            config = classifiers.case_of(args, case, int(seed))
            assert rows.figures(case, config, classifiers.judge) == figures
            config.set("split", "azimuth")
            assert rows.figures(case, config, classifiers.judge) is None


@pytest.mark.some(2)
@pytest.mark.parametrize("dataset", ["fashion_mnist", "mnist"])
def test_the_page_of_the_ladder_has_the_tables_of_its_rows(dataset):
    kept = ROOT / "docs" / "benchmarks" / "ladder" / dataset / "ladder.json"
    done = ladder.current(json.loads(kept.read_text()), ladder.rows())
    text = (ROOT / "docs" / "ladder.md").read_text()
    for name, columns in ladder.TABLES.items():
        table = ladder.table(done, list(ladder.rows()), [0, 1, 2], columns)
        assert table.count("\n") > 2, "no rows are kept"
        assert f"<!-- {dataset} {name} -->\n\n{table}\n" in text


@pytest.mark.parametrize("dataset", ["fashion_mnist", "mnist"])
def test_the_page_has_the_tables_of_detail(dataset):
    """Rejects a figure that no row has, and rows of settings that a recipe no longer has."""
    kept = ROOT / "docs" / "benchmarks" / "detail" / dataset / "detail.json"
    done = json.loads(kept.read_text())
    for name, seeds in done.items():
        for figures in seeds.values():
            assert is_of(figures["sections"], detail.config_of(name))
    text = (ROOT / "docs" / "reproduction.md").read_text()
    for name, columns in detail.TABLES.items():
        table = detail.table(done, list(detail.ROWS), [0, 1, 2], columns)
        assert table.count("\n") >= 5, "rows are missing"
        assert f"<!-- detail {dataset} {name} -->\n\n{table}\n" in text
