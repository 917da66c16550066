"""One table of what all families draw, from files of `capspoe evaluate --json`.

Of each file the rows that are the model's own kinds of draws, under the name given; `real` and
the controls, which need features, from the first file. Usage:
python benchmarks/research/families.py NAME=FIGURES.json [NAME=FIGURES.json ...]
"""

import argparse
import json
from pathlib import Path

COLUMNS = {
    "recognised": "recognised",
    "purity": "purity",
    "modal_classes": "modal classes",
    "frechet": "Frechet",
    "precision": "precision",
    "recall": "recall",
    "coverage": "coverage",
}
DRAWS = ("complete", "visited", "joint")
SHARED = (
    "real", "autoencoder", "variational_autoencoder", "gaussian_mixture", "boltzmann_machine",
    "full_gaussian", "diagonal_gaussian",
)  # fmt: skip


def rows(files):
    """Names and figures of the rows of the table, in order.

    Args:
        files: List of (name, dict of `capspoe evaluate`).

    Examples:

    >>> found = rows([("a", {"samples": {"real": {}, "joint": {"recall": 1.0}, "other": {}}})])
    >>> [name for name, _ in found]
    ['real', 'a, joint']
    """
    first = files[0][1]["samples"]
    found = [(name.replace("_", " "), first[name]) for name in SHARED[:2] if name in first]
    for name, figures in files:
        samples = figures["samples"]
        found += [(f"{name}, {kind}", samples[kind]) for kind in DRAWS if kind in samples]
    return found + [(name.replace("_", " "), first[name]) for name in SHARED[2:] if name in first]


def table(found):
    """Lines of Markdown of `rows`.

    Examples:

    >>> print(table([("a", {"recall": 0.25})])[-1])
    | a | - | - | - | - | - | 0.250 | - |
    """
    lines = ["| | " + " | ".join(COLUMNS.values()) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for name, figures in found:
        cells = (_cell(figures.get(column)) for column in COLUMNS)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _cell(value):
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:#.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="NAME=FIGURES.json")
    pairs = [text.partition("=")[::2] for text in parser.parse_args().files]
    found = rows([(name, json.loads(Path(path).read_text())) for name, path in pairs])
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
