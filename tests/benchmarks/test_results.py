"""The results pages have the tables of the kept rows, and no number that was typed by hand."""

import doctest
import json
import re
import subprocess
from pathlib import Path

import results

ROOT = Path(__file__).parents[2]
PAGES = sorted(results.PAGES.glob("*.md"))
TEXT = "Text.\n\n<!-- table: signs -->\nold\n<!-- end -->\n"


def test_a_page_has_the_tables_of_its_rows():
    for path in PAGES:
        text = path.read_text()
        assert results.filled(text) == text, path


def test_no_measured_number_is_typed():
    """Rejects decimals and percentages outside of generated tables."""
    text = "".join(results.BLOCK.sub("", path.read_text()) for path in PAGES)
    text = re.sub(r"`[^`\n]*`", "", text)
    # The threshold of the confident fraction and of a correlation, a range that a picture shows,
    # and the section of a paper are settings.
    allowed = {"0.9", "0.7", "0.25", "5.1"}
    assert set(re.findall(r"\d+\.\d+|\d+%", text)) <= allowed


def test_all_rows_have_a_source():
    assert not results.stale()
    for name, source in json.loads((results.ROWS / "sources.json").read_text()).items():
        assert set(source) == {"command", "commit", "date", "sha256"}, name
        script = re.search(r"benchmarks/[\w/]+\.py", source["command"])
        assert source["command"] == "make bench" or (ROOT / script[0]).exists()


def test_rows_that_are_older_than_their_code(tmp_path):
    """Rejects changes of other scripts, of pages, and a commit that was lost as one that is new."""

    def commit(path):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        with open(tmp_path / path, "a") as file:
            file.write("x")
        for words in (
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", "-C", tmp_path, *words], check=True)
        return results.git("rev-parse", "--short", "HEAD", root=tmp_path)

    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commits = [
        commit(path)
        for path in ("benchmarks/a.py", "keras_capsule_poe/core/x.py", "benchmarks/a.py",
                     "benchmarks/b.py", "docs/a.md")
    ]  # fmt: skip
    source = {"command": "python benchmarks/a.py FILE"}
    dates = {c: {**source, "commit": c, "date": str(k)} for k, c in enumerate([*commits, "0" * 7])}
    found = [[line[0], *line[3:]] for line in results.older(dates, tmp_path)]
    first, second = commits[:2]
    assert found == [[first, "1", "1"], [second, "1", "0"], ["0" * 7, "unknown", "unknown"]]


def test_examples():
    assert doctest.testmod(results).failed == 0


def test_each_table_is_on_one_page():
    shown = [name for path in PAGES for _, name, _ in results.BLOCK.findall(path.read_text())]
    assert sorted(shown) == sorted(results.TABLES)


def test_a_table_replaces_what_was_there():
    once = results.filled(TEXT)
    assert "old" not in once and "| affine |" not in once and "`affine`" in once
    assert results.filled(once) == once


def test_rows_that_changed_are_stale(monkeypatch, tmp_path):
    rows = tmp_path / "rows"
    for name in {file for _, *files in results.TABLES.values() for file in files}:
        (rows / name).parent.mkdir(parents=True, exist_ok=True)
        (rows / name).write_bytes((results.ROWS / name).read_bytes())
    (rows / "sources.json").write_bytes((results.ROWS / "sources.json").read_bytes())
    monkeypatch.setattr(results, "ROWS", rows)
    assert not results.stale()
    (rows / "cd_step.json").write_text("{}")
    assert results.stale() == ["cd_step.json"]


def test_claims_have_three_seeds():
    for dataset in results.DATASETS:
        rows = results.read(f"claims/{dataset}.json")
        for name in results.CLAIMS:
            first, *others = (rows[f"{dataset}-{seed}-{name}"]["prior"] for seed in range(3))
            assert all(other != first for other in others)
