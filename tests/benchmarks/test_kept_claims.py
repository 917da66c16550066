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


def test_what_the_default_draws_after_an_autoencoder_in_float32():
    text = (DOCS / "reproduction.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("The default again"))
    for domain in ("complete", "visited"):
        for figure in ("recognised", "purity"):
            assert _of_seeds("fashion_mnist", "float32", domain, figure) in line
    rows = [f"{seed}-float32" for seed in (0, 1, 2)] + ["0-bfloat16"]
    for row in rows:
        complete = KEPT["fashion_mnist"][f"fashion_mnist-{row}"]["complete"]
        assert f"{complete['recognised']:.3f}" in line and f"{complete['purity']:.3f}" in line


def test_what_the_default_draws_from_the_closest_of_five_clusterings():
    reproduction = (DOCS / "reproduction.md").read_text()
    (line,) = (
        line for line in reproduction.splitlines() if line.startswith("Part of it was the start")
    )
    readme = (DOCS.parent / "README.md").read_text()
    for domain in ("complete", "visited"):
        for figure in ("recognised", "purity"):
            said = _of_seeds("fashion_mnist", "five starts", domain, figure)
            assert said in line and said in readme
        assert _of_seeds("fashion_mnist", "five starts", domain, "frechet", digits=1) in readme


def _of_seeds(data, name, domain, figure, digits=3):
    found = [KEPT[data][f"{data}-{seed}-{name}"][domain][figure] for seed in (0, 1, 2)]
    return f"{np.mean(found):.{digits}f} ± {np.std(found, ddof=1):.{digits}f}"
