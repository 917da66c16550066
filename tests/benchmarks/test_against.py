"""An older checkout against this one."""

import argparse
import json
import subprocess

import _against as against
import pytest

CASE = {"images": 3, "inputs": 4}


@pytest.fixture
def old(tmp_path):
    """What looks like a checkout."""
    folder = tmp_path.resolve() / "old"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").touch()
    return folder


def parse(against, *arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    against.add_arguments(parser)
    return parser.parse_args([str(argument) for argument in arguments])


def found(ms, mb=10.0, norms=(2.0, 4.0)):
    return {"ms": ms, "mb": mb, "norms": list(norms)}


def test_a_row_has_the_least_of_all_rounds():
    new = [found(6.0, 8.0, (2.0, 4.1)), found(7.0, 5.0, (2.0, 4.1))]
    row = against.case_row(CASE, [found(8.0), found(5.0)], new)
    assert row["case"] == "images 3, inputs 4"
    assert (row["old_ms"], row["new_ms"], row["ratio"]) == (5.0, 6.0, 1.2)
    assert (row["old_mb"], row["new_mb"], row["memory_ratio"]) == (10.0, 5.0, 0.5)
    assert row["difference"] == pytest.approx(0.025)


@pytest.mark.parametrize("options", [["--fail"], []])
def test_rounds_alternate_and_only_with_fail_a_ratio_fails(old, tmp_path, monkeypatch, options):
    order = []

    def measure_round(python, checkout, name, case):
        order.append("old" if checkout == old else "new")
        return found(5.0 if checkout == old else 5.2)

    monkeypatch.setattr(against, "_round", measure_round)
    path = tmp_path / "rows.json"
    args = parse(against, "--against", old, "--rounds", 2, "--json", path, *options)
    if options:
        with pytest.raises(SystemExit, match="slower than 1.03 times the old: images 3, inputs 4"):
            against.compare("cd_step", [CASE], args)
    else:
        against.compare("cd_step", [CASE], args)
    assert order == ["old", "new", "old", "new"]
    (row,) = json.loads(path.read_text())["rows"]
    assert row["ratio"] == pytest.approx(1.04)


def test_within_three_percent_nothing_fails(old, monkeypatch):
    def measure_round(python, checkout, name, case):
        return found(100.0 if checkout == old else 102.9)

    monkeypatch.setattr(against, "_round", measure_round)
    against.compare("cd_step", [CASE], parse(against, "--against", old, "--fail"))


def test_a_folder_without_an_interpreter_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse(against, "--against", tmp_path)
    assert "python is missing" in capsys.readouterr().err


def test_an_interpreter_of_another_package_is_refused(old, monkeypatch):
    said = json.dumps({**found(5.0), "checkout": str(old / "other")})
    done = subprocess.CompletedProcess([], 0, f"a line of another program\n{said}\n", "")
    monkeypatch.setattr(against.children, "run", lambda *args, **options: done)
    with pytest.raises(SystemExit, match=f"other, not of {old}"):
        against._round("python", old, "cd_step", CASE)
    assert against._round("python", old / "other", "cd_step", CASE)["ms"] == 5.0
