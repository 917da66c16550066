"""What docs/reproduction.md and README.md say of three seeds' draws is what was kept of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
KEPT = {
    name: json.loads((DOCS / "benchmarks" / "claims" / f"{name}.json").read_text())
    for name in ("fashion_mnist", "mnist")
}


@pytest.mark.parametrize(
    "model, name", [("plain form", "paper"), ("three", "3"), ("four", "4"), ("default", "default")]
)
@pytest.mark.parametrize("domain, claim", [("prior", "Figure 2a and"), ("half_space", "2b and")])
def test_shares_that_are_recognised(model, name, domain, claim):
    lines = (DOCS / "reproduction.md").read_text().splitlines()
    begun = next(i for i, line in enumerate(lines) if line.startswith("|") and claim in line)
    line = next(line for line in lines[begun:] if f", {model} |" in line)
    for column, data in zip((3, 4), KEPT):
        assert line.split("|")[column].strip() == _of_seeds(data, name, domain, "recognised")


def test_what_single_capsules_of_the_default_draw():
    readme = (DOCS.parent / "README.md").read_text()
    begun = readme.index("Three seeds of `capsules, prior`")
    said = readme[begun : readme.index("Three seeds of", begun + 1)]
    figures = (("recognised", 3), ("purity", 3), ("frechet", 1))
    assert _means_and_deviations(said) == [
        _of_seeds(data, "default", domain, figure, digits)
        for domain in ("prior", "posterior")
        for data in KEPT
        for figure, digits in figures
    ]


def test_what_the_default_drew_from_other_starts():
    line = _line("What the default drew")
    both = [
        _of_seeds(data, "older", domain, figure)
        for figure in ("recognised", "purity")
        for domain in ("prior", "posterior")
        for data in KEPT
    ]
    clothes = [
        _of_seeds("fashion_mnist", name, domain, figure)
        for name in ("float32", "five starts")
        for figure in ("recognised", "purity")
        for domain in ("prior", "posterior")
    ]
    assert _means_and_deviations(line) == both + clothes


def test_what_it_draws_from_twenty_and_from_five():
    line = _line("Twenty of components")
    assert _means_and_deviations(line) == [
        _of_seeds("fashion_mnist", f"{name}, held out", domain, figure, digits)
        for domain in ("prior", "posterior")
        for figure, digits in (("recognised", 3), ("purity", 3), ("frechet", 1))
        for name in ("default", "from five")
    ]
    one = KEPT["fashion_mnist"]["fashion_mnist-0-bfloat16"]
    for domain in ("prior", "posterior"):
        assert "{recognised:.3f} and {purity:.3f}".format(**one[domain]) in line


def test_the_purity_of_the_default():
    lines = (DOCS / "reproduction.md").read_text().splitlines()
    (row,) = (line for line in lines if line.startswith("| | partly, default |"))
    for cell, data in zip(row.split("|")[3:5], KEPT):
        modal = [KEPT[data][f"{data}-{s}-default"]["prior"]["modal_classes"] for s in (0, 1, 2)]
        purity = _of_seeds(data, "default", "prior", "purity")
        assert cell.strip() == f"{purity}; {', '.join(map(str, modal))}"


def _line(start):
    lines = (DOCS / "reproduction.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(start))
    return line


def _means_and_deviations(text):
    return re.findall(r"[0-9.]+ ± [0-9.]*[0-9]", text)


def _of_seeds(data, name, domain, figure, digits=3):
    found = [KEPT[data][f"{data}-{seed}-{name}"][domain][figure] for seed in (0, 1, 2)]
    return f"{np.mean(found):.{digits}f} ± {np.std(found, ddof=1):.{digits}f}"
