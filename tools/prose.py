"""Check that English text is plain: Markdown pages, and docstrings of Python files.

    python tools/prose.py keras_capsule_poe cli
    python tools/prose.py --list 20 README.md docs

The command measures pages and docstrings separately, and ends with 1 if a measure is above its
limit. It ignores code, tables, headings and doctests. The limits find text that is hard to read.
Text within the limits can still be hard to read.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

MANY_WORDS = 30  # a longer sentence is hard to follow
MANY_NUMBERS = 8  # a paragraph with more belongs in a table
# Clauses before the subject: "What the layer computes is ...".
FRONTED = re.compile(
    r"(What(ever)?|Whoever|Whether|How (far|much|well|good)|Of|Nothing|Where|Such|Both)\b "
)
# Private words for which the field has a term, or an everyday word is clearer.
HOUSE = re.compile(
    r"\b(told|tells of|laid|lays? down|mend(s|ed)?|meets?|at hand|held (?!out)|complain\w*|beside"
    r"|whatever|brings? along|comes? undone|what is left|in the place of|heed(s|ed)?"
    r"|now and then|besides these|of its own|as it stands|comes? to nothing)\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\b\d[\d.,%]*\b")
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`(])")
LIST_ITEM = re.compile(r"([-*]|\d+\.)\s+")
ARGUMENT = re.compile(r"\*{0,2}\w+: ")  # of Google style, in a docstring
NO_PROSE = ("|", "#", ">>>", "...", "<", "![")


class Limits(NamedTuple):
    """Largest measures of text that passes; the order is that of `Measures.rates`."""

    long: float  # percent of the sentences
    fronted: float  # percent of the sentences
    house: float  # per 1,000 words
    numbers: float  # per 1,000 words
    crowded: int  # paragraphs


LIMITS = {"pages": Limits(8, 1, 0.4, 20, 2), "docstrings": Limits(3.5, 0.5, 0.3, 22, 2)}


class Finding(NamedTuple):
    """Text that raises a measure."""

    path: Path
    line: int
    measure: str
    text: str


class Measures:
    """Counts of one kind of text."""

    def __init__(self):
        self.counts = Counter()
        self.findings = []

    def add(self, path, line, paragraph):
        """Count a paragraph without markup."""
        numbers = len(NUMBER.findall(paragraph))
        self.counts["numbers"] += numbers
        if numbers > MANY_NUMBERS:
            self._found(path, line, "crowded", paragraph)
        for sentence in SENTENCE_END.split(paragraph):
            words = len(sentence.split())
            if words < 3:
                continue
            self.counts["words"] += words
            self.counts["sentences"] += 1
            if words > MANY_WORDS:
                self._found(path, line, "long", sentence)
            if FRONTED.match(sentence):
                self._found(path, line, "fronted", sentence)
            for _ in HOUSE.finditer(sentence):
                self._found(path, line, "house", sentence)

    def _found(self, path, line, measure, text):
        self.counts[measure] += 1
        self.findings.append(Finding(path, line, measure, text))

    def rates(self):
        """Return the measures in the units of `Limits`."""
        sentences, words = max(1, self.counts["sentences"]), max(1, self.counts["words"])
        return Limits(
            100 * self.counts["long"] / sentences,
            100 * self.counts["fronted"] / sentences,
            1000 * self.counts["house"] / words,
            1000 * self.counts["numbers"] / words,
            self.counts["crowded"],
        )


def plain(text):
    """Return text with code, formulas, pictures and links replaced by a word."""
    text = re.sub(r"!\[.*?\]\(.*?\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "CODE", text)
    return re.sub(r"\$[^$]*\$", "FORMULA", text)


def paragraphs(text, first=1, arguments=False):
    """Yield line number and text of each paragraph, list item and, if asked, each argument."""
    fenced, example, start, part = False, False, first, []
    for number, line in enumerate([*text.split("\n"), ""], first):
        line = line.strip()
        is_fence = line.startswith("```")
        fenced ^= is_fence
        # The output of a doctest ends with an empty line.
        example = bool(line) and (example or line.startswith(">>>"))
        skipped = is_fence or fenced or example or not line or line.startswith(NO_PROSE)
        item = LIST_ITEM.match(line) or (ARGUMENT.match(line) if arguments else None)
        if (skipped or item) and part:
            yield start, plain(" ".join(part))
            part = []
        if not skipped:
            start = start if part else number
            part.append(LIST_ITEM.sub("", line, count=1) if item else line)


def docstrings(source):
    """Yield line number and text of each docstring in Python source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def measure(paths):
    """Measure files, and the Markdown and Python files in folders.

    Returns:
        dict from "pages" and "docstrings" to `Measures`.
    """
    measured = {kind: Measures() for kind in LIMITS}
    for path in files(paths):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            kind, parts = "pages", paragraphs(text)
        else:
            kind = "docstrings"
            parts = (
                part
                for line, found in docstrings(text)
                for part in paragraphs(found, line, arguments=True)
            )
        for line, paragraph in parts:
            if len(paragraph.split()) > 4:
                measured[kind].add(path, line, paragraph)
    return measured


def files(paths):
    """Yield files to measure; a path that does not exist is an error."""
    for path in map(Path, paths):
        if not path.is_dir():
            yield path
            continue
        for found in sorted(path.rglob("*")):
            # What npm installs is not ours.
            if found.suffix in (".md", ".py") and "node_modules" not in found.parts:
                yield found


def report(kind, measures):
    """Print the measures of a kind of text, and return whether all are within the limits."""
    rates, limits = measures.rates(), LIMITS[kind]
    print(f"{kind}: {measures.counts['words']:,} words")
    names = (
        "% of sentences have more than 30 words",
        "% of sentences open with a clause before the subject",
        " private words per 1,000 words",
        " numbers per 1,000 words",
        " paragraphs with more than 8 numbers",
    )
    for name, rate, limit in zip(names, rates, limits):
        print(f"  {rate:.3g}{name} (limit {limit}){'  TOO MANY' if rate > limit else ''}")
    return all(rate <= limit for rate, limit in zip(rates, limits))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("paths", nargs="+", help="Markdown files, Python files and folders")
    parser.add_argument("--list", type=int, default=0, metavar="N", help="print N findings of each")
    options = parser.parse_args(arguments)
    passed = True
    for kind, measures in measure(options.paths).items():
        shown = Counter()
        for path, line, name, text in measures.findings:
            shown[name] += 1
            if shown[name] <= options.list:
                print(f"{path}:{line}: {name}: {text[:160]}")
        if measures.counts["words"]:
            passed &= report(kind, measures)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
