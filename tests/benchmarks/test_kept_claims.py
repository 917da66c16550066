"""What docs/reproduction.md says of what is recognised is what was kept of three seeds."""

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
        found = [KEPT[data][f"{data}-{seed}-{name}"][domain]["recognised"] for seed in (0, 1, 2)]
        shown = f"{np.mean(found):.3f} ± {np.std(found, ddof=1):.3f}"
        assert line.split("|")[column].strip() == shown
