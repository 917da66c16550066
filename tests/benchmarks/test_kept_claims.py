"""What docs/reproduction.md and README.md say of three seeds' draws is what was kept of them."""

import json
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
@pytest.mark.parametrize("domain, claim", [("complete", "Figure 2a and"), ("restricted", "2b and")])
def test_shares_that_are_recognised(model, name, domain, claim):
    lines = (DOCS / "reproduction.md").read_text().splitlines()
    begun = next(i for i, line in enumerate(lines) if line.startswith("|") and claim in line)
    line = next(line for line in lines[begun:] if f", {model} |" in line)
    for column, data in zip((3, 4), KEPT):
        assert line.split("|")[column].strip() == _of_seeds(data, name, domain, "recognised")


def test_what_single_capsules_of_the_default_draw():
    readme = (DOCS.parent / "README.md").read_text()
    begun = readme.index("Three seeds of `capsules, complete`")
    said = readme[begun : readme.index("Three seeds of", begun + 1)]
    for data in KEPT:
        for domain in ("complete", "visited"):
            for figure, digits in (("recognised", 3), ("purity", 3), ("frechet", 1)):
                assert _of_seeds(data, "default", domain, figure, digits) in said


def test_what_the_default_drew_from_other_starts():
    text = (DOCS / "reproduction.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("What the default drew"))
    rows = [(data, "older") for data in KEPT]
    rows += [("fashion_mnist", name) for name in ("float32", "five starts")]
    for data, name in rows:
        for domain in ("complete", "visited"):
            for figure in ("recognised", "purity"):
                assert _of_seeds(data, name, domain, figure) in line


def test_what_it_draws_from_twenty_and_from_five():
    text = (DOCS / "reproduction.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("Twenty of components"))
    for name in ("default, held out", "from five, held out"):
        for domain in ("complete", "visited"):
            for figure in ("recognised", "purity"):
                assert _of_seeds("fashion_mnist", name, domain, figure) in line


def _of_seeds(data, name, domain, figure, digits=3):
    found = [KEPT[data][f"{data}-{seed}-{name}"][domain][figure] for seed in (0, 1, 2)]
    return f"{np.mean(found):.{digits}f} ± {np.std(found, ddof=1):.{digits}f}"
