"""A missed bar fails where it does not depend on the processor, and is reported elsewhere."""

import json
from pathlib import Path

import pytest
import run_all

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "benchmarks"


@pytest.fixture
def results():
    """Those that the page of results shows."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(STORED.glob("*.json"))}


@pytest.fixture
def judge(results, monkeypatch, tmp_path):
    """Runs the program on results that are there already; its page."""

    def call():
        monkeypatch.setattr(run_all, "run", lambda name, out, *options: results[name])
        # The signals of the process that tests are none of this program's.
        monkeypatch.setattr(run_all.children, "exit_on_sigterm", lambda: None)
        run_all.main(["--out", str(tmp_path)])
        return (tmp_path / "README.md").read_text()

    return call


def paper_row(results):
    rows = results["cd_step"]["rows"]
    sizes = {"form": "ours", "images": 128, "inputs": 576}
    return next(row for row in rows if sizes.items() <= row.items())


def test_what_binds(results):
    rows = run_all.bars(results)
    free = [row["what"] for row in rows if row["binds"] == "no"]
    assert len(rows) == 23 and free == [
        "CD step, 128 images: share of the large-product rate",
        "CD step, 1024 images, 4608 inputs: extra MB",
        "Growth: extra MB beyond gradient and results, at most",
        "capspoe train, 60,000 images: minutes",
    ]


def test_stored_results_hold_and_are_shown(judge, results):
    page, share = judge(), paper_row(results)["share_of_product_rate"]
    assert all(f"\n## {name}\n" in page for name in run_all.NAMES)
    assert f"| CD step, 128 images: share of the large-product rate | {share:.3g} |" in page


def test_a_missed_bar_that_binds_fails(judge, results):
    paper_row(results)["speedup_over_best"] = 4.9
    with pytest.raises(SystemExit, match="missed: CD step, 128 images: times faster than"):
        judge()


def test_a_missed_bar_of_the_processor_is_reported(judge, results, capsys):
    paper_row(results)["share_of_product_rate"] = 0.09
    results["pipeline"]["rows"][-1]["minutes_full"] = 99.0
    page = judge()
    assert "| 99 | at most 15 | no | no |" in page
    printed = capsys.readouterr().out
    assert "missed, but of this processor: CD step, 128 images: share of the large-" in printed
    assert "60,000 images: minutes" in printed


def test_a_benchmark_that_fails_is_named(judge, results):
    results["serving"] = None
    with pytest.raises(SystemExit, match="failed: serving; missed: none"):
        judge()


def test_what_was_measured_before_stays_on_the_page(tmp_path):
    machine = run_all.measure.machine()
    for name, about in (("cd_step", machine), ("growth", {**machine, "cores": 99})):
        (tmp_path / f"{name}.json").write_text(json.dumps({"machine": about, "rows": []}))
    assert run_all.kept("cd_step", tmp_path) == {"machine": machine, "rows": []}
    # Of another machine, and what never was.
    assert run_all.kept("growth", tmp_path) is None and run_all.kept("quality", tmp_path) is None


def test_those_that_are_not_asked_for_come_from_before(results, monkeypatch, tmp_path):
    monkeypatch.setattr(run_all, "run", lambda name, out, *options: results[name])
    monkeypatch.setattr(run_all.children, "exit_on_sigterm", lambda: None)
    about = {**results["cd_step"], "machine": run_all.measure.machine()}
    for folder in (tmp_path, tmp_path / "quick"):
        folder.mkdir(exist_ok=True)
        (folder / "cd_step.json").write_text(json.dumps(about))
    run_all.main(["--only", "growth", "--out", str(tmp_path)])
    page = (tmp_path / "README.md").read_text()
    assert "## growth" in page and "## cd_step" in page and "## serving" not in page
    # The smallest cases lie apart.
    run_all.main(["--only", "growth", "--quick", "--out", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == page
    assert (tmp_path / "quick" / "README.md").exists()


def test_what_was_not_measured_is_no_bar(results):
    paper_row(results)["speedup_over_best"] = None
    assert len(run_all.bars(results)) == 22
