"""Size of the code: code lines, lines and files of each package.

A code line holds a token that is not a comment or a docstring. Run `python tools/size.py`, or
`python tools/size.py --check` to fail if a number is above `[tool.size]` in pyproject.toml.
"""

import argparse
import ast
import io
import sys
import tokenize
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
# Each limit covers these folders.
PLACES = {"package": ("keras_capsule_poe", "cli"), "tests": ("tests",)}
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source):
    """Return the number of lines of Python source that hold code.

    >>> code_lines('def f(x):  # a comment\\n    "A docstring."\\n\\n    return x\\n')
    2
    """
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, text.end_lineno + 1))
    return len(lines)


def sizes(places):
    """Return `{package: [code lines, lines, files]}` of the Python files below folders."""
    found = {}
    for place in places:
        for path in sorted((ROOT / place).rglob("*.py*")):
            if path.suffix not in (".py", ".pyi"):
                continue
            package = str(path.parent.relative_to(ROOT))
            source = path.read_text()
            row = found.setdefault(package, [0, 0, 0])
            for i, number in enumerate((code_lines(source), source.count("\n"), 1)):
                row[i] += number
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    is_checked = parser.parse_args().check
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"].get("size", {})
    too_large = []
    for name, places in PLACES.items():
        rows = sizes(places)
        total = [sum(row[i] for row in rows.values()) for i in range(3)]
        if not is_checked:
            for package, row in [*rows.items(), (f"all of {name}", total)]:
                print(f"{package:40}{row[0]:8,} code{row[1]:8,} lines{row[2]:6,} files")
        for kind, number in zip(("code", "lines", "files"), total):
            limit = limits.get(name, {}).get(kind)
            if limit is not None and number > limit:
                too_large.append(f"{name}: {number:,} {kind}, the limit is {limit:,}")
    if too_large:
        print(*too_large, sep="\n", file=sys.stderr)
        print(
            "Remove as much, or raise [tool.size] in pyproject.toml and say why.", file=sys.stderr
        )
        raise SystemExit(1)


if __name__ == "__main__":
    main()
