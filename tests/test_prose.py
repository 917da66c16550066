"""The docstrings are plain English by the limits of `tools/prose.py`, and bad text is above them.

Rejected: text above one of the five limits, in a page, a docstring, a list and an argument. Code,
tables and doctests are not counted.
"""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLAIN = "The encoder computes the sum of the votes. The decoder returns an image."
# Text above one limit, and within the others.
BAD = {
    "long": "The encoder computes " + "the sum of the votes and " * 6 + "returns the image.",
    "fronted": "What the encoder computes is the sum of the votes.",
    "house": "The caller is told the sum of the votes.",
    "numbers": "The encoder takes 3 steps and returns 4 images.",
    "crowded": "The sizes are 1, 2, 3, 4, 5, 6, 7, 8 and 9 pixels." + f" {PLAIN}" * 40,
}


@pytest.fixture(scope="module")
def prose():
    return runpy.run_path(str(ROOT / "tools/prose.py"))


def above(prose, path):
    """Names of the measures of a file that are above their limits."""
    found = set()
    for kind, measures in prose["measure"]([path]).items():
        limits = prose["LIMITS"][kind]._asdict()
        found |= {name for name, rate in measures.rates()._asdict().items() if rate > limits[name]}
    return found


def test_our_docstrings_and_pages_pass(prose, capsys):
    paths = ("keras_capsule_poe", "cli", "tools", "CONTRIBUTING.md", "README.md", "docs")
    status = prose["main"](["--list", "5", *(str(ROOT / path) for path in paths)])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "docstrings: " in printed and "pages: " in printed


@pytest.mark.parametrize("name", ["page.md", "module.py"])
@pytest.mark.parametrize("measure", list(BAD))
def test_bad_text_fails(prose, tmp_path, capsys, measure, name):
    path = tmp_path / name
    text = "\n\n".join([BAD[measure]] * 3)
    path.write_text(f'"""{text}"""\n' if name.endswith(".py") else text)
    assert above(prose, path) == {measure}
    assert prose["main"]([str(path)]) == 1
    assert "TOO MANY" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["- {}\n- {}", "1. {}\n2. {}", "{}\n\n```\n{}\n```"])
def test_items_of_a_list_count_one_by_one(prose, text):
    text = text.format(BAD["fronted"], BAD["fronted"])
    found = list(prose["paragraphs"](text))
    assert found[0] == (1, BAD["fronted"])
    assert len(found) == 1 + ("```" not in text)


def test_arguments_of_a_docstring_count_one_by_one(prose):
    text = "Encode.\n\nArgs:\n    x: The images.\n        All of them.\n    **options: Of a layer."
    found = [(1, "Encode."), (3, "Args:"), (4, "x: The images. All of them.")]
    assert list(prose["paragraphs"](text, arguments=True)) == [
        *found,
        (6, "**options: Of a layer."),
    ]


@pytest.mark.parametrize("name", ["page.md", "module.py"])
def test_code_tables_and_examples_do_not_count(prose, tmp_path, name):
    path = tmp_path / name
    numbers = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    text = f"{PLAIN} `{numbers}`\n\n| {numbers} |\n\n>>> f({numbers})\n{numbers}\n\n# {numbers}\n"
    path.write_text(f'"""{text}"""\n' if name.endswith(".py") else text)
    assert not above(prose, path)
    (kind,) = (kind for kind, found in prose["measure"]([path]).items() if found.counts["words"])
    assert prose["measure"]([path])[kind].counts["numbers"] == 0


def test_a_path_that_does_not_exist_is_an_error(prose):
    with pytest.raises(FileNotFoundError):
        prose["main"]([str(ROOT / "nothing.md")])
