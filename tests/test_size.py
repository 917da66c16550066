"""Size of the code: `tools/size.py` counts lines that hold code, and fails above a limit."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "size.py"
SOURCE = '''"""A module."""

# A comment.
import sys  # another


class A:
    """A class.

    Two lines.
    """

    text = """not a docstring,
    two lines"""

    def f(self):
        "A docstring."
        return (
            self.text
        )
'''


@pytest.fixture
def size(tmp_path, monkeypatch):
    """The script, for a tree of one file of 8 code lines and one without."""
    spec = importlib.util.spec_from_file_location("size", SCRIPT)
    size = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(size)
    monkeypatch.setattr(size, "ROOT", tmp_path)
    package = tmp_path / "cli" / "parts"
    package.mkdir(parents=True)
    (package / "one.py").write_text(SOURCE)
    (package / "two.pyi").write_text("# nothing\n")
    (package / "data.pyc").write_bytes(b"\xff")
    return size


def test_only_lines_that_hold_code_are_counted(size):
    assert size.code_lines(SOURCE) == 8
    assert size.sizes(["cli"]) == {"cli/parts": [8, 21, 2]}


@pytest.mark.parametrize("limit, fails", [(8, False), (7, True)])
def test_it_fails_above_a_limit(size, tmp_path, monkeypatch, capsys, limit, fails):
    (tmp_path / "pyproject.toml").write_text(f"[tool.size.package]\ncode = {limit}\n")
    monkeypatch.setattr(sys, "argv", ["size.py", "--check"])
    if not fails:
        return size.main()
    with pytest.raises(SystemExit):
        size.main()
    assert "package: 8 code, the limit is 7" in capsys.readouterr().err
