"""The tutorials run from top to bottom, and each picture and number comes from a cell."""

import json
import re
from pathlib import Path

import matplotlib
import pytest

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.py"))


def cells(path):
    """Pairs (is code, text) of a script in the percent format."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(), flags=re.MULTILINE)[1:]
    return [("[markdown]" not in kind, text) for kind, text in zip(parts[::2], parts[1::2])]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_each_cell_is_code_or_text(path):
    found = cells(path)
    assert not found[0][0] and found[0][1].startswith("# # "), "it has no title"
    for is_code, text in found:
        if is_code:
            compile(text, path.name, "exec")
        else:
            assert all(line.startswith("#") for line in text.strip().splitlines())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path, tmp_path, monkeypatch, capsys):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for is_code, text in cells(path):
        if is_code:
            exec(compile(text, path.name, "exec"), names)
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_notebook_is_that_of_the_script(path):
    """Rejects a notebook that was not made again, or that was not run."""
    notebook = json.loads(path.with_suffix(".ipynb").read_text())
    found = [
        (cell["cell_type"] == "code", "".join(cell["source"]).strip()) for cell in notebook["cells"]
    ]
    assert found == [
        (is_code, text.strip() if is_code else re.sub(r"^# ?", "", text.strip(), flags=re.M))
        for is_code, text in cells(path)
    ]
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert any(cell["outputs"] for cell in code)
