"""Runs all benchmarks, writes their rows and tables to a folder, and checks the bars.

It fails if a benchmark fails or a bar that binds is missed; the other bars are reported. With
--only, what DIR holds of the others, measured on the same machine, stays on its page.
Half an hour; with --full, which trains on all of Fashion-MNIST, eight more, and hours for
the memory of all families, where else it is that of one.
Usage: python benchmarks/run_all.py [--full] [--out build/benchmarks] [--only cd_step ...]
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

import _children as children
import _measure as measure
from _bars import COLUMNS, bars, missed

HERE = Path(__file__).resolve().parent
NAMES = (
    "cd_step",
    "routing_layer",
    "em_routing",
    "convolutions",
    "growth",
    "quality",
    "serving",
    "memory",
    "pipeline",
)


def run(name, out, *options):
    """Runs one benchmark; what it wrote, or None if it failed."""
    path = out / f"{name}.json"
    print(f"== {name}", flush=True)
    start = time.perf_counter()
    command = [sys.executable, HERE / f"{name}.py", "--json", path, *options]
    failed = children.run(command).returncode
    if failed:
        # Nor may it be taken for what was measured by the next one.
        path.unlink(missing_ok=True)
    print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return None if failed else json.loads(path.read_text())


def kept(name, out):
    """What a benchmark wrote before on this machine, or None."""
    path = out / f"{name}.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    return result if result.get("machine") == measure.machine() else None


def markdown(columns, rows):
    """A table."""
    lines = [columns, ["---"] * len(columns)]
    lines += [[measure.cell(row.get(column)) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def page(results, held):
    """All tables, the machine and the bars, as Markdown.

    Args:
        results: Dict of the name of a benchmark to what it wrote.
        held: Rows of `bars`.
    """
    machine = ", ".join(f"{name} {value}" for name, value in measure.machine().items())
    text = [
        "# Benchmarks\n",
        f"Written by `make bench` on: {machine}. Milliseconds are the least of several runs; "
        "`extra_mb` is the peak of one run above what the process held before.\n",
        "## Bars\n",
        "Those that bind do not depend on the processor; the others are reported.\n",
        markdown(COLUMNS, held),
    ]
    for name, result in results.items():
        module = importlib.import_module(name)
        text += [f"## {name}\n", module.__doc__.split("Usage:")[0].strip() + "\n"]
        text.append(markdown(list(module.COLUMNS), result["rows"]))
    return "\n".join(text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--full", action="store_true", help="train on all images")
    parser.add_argument(
        "--quick", action="store_true", help="the smallest cases, of which no bar speaks"
    )
    args = parser.parse_args(arguments)
    children.exit_on_sigterm()
    if args.quick:
        # The smallest cases are no figures, and lie apart.
        args.out /= "quick"
    args.out.mkdir(parents=True, exist_ok=True)
    options = ["--quick"] if args.quick else []
    more = {"pipeline": ["--full"] if args.full else []}
    # Of all families it takes hours.
    more["memory"] = [] if args.full else ["--family", "rbm"]
    results = {
        name: run(name, args.out, *options, *more.get(name, []))
        if name in args.only
        else kept(name, args.out)
        for name in NAMES
    }
    failed = [name for name in args.only if results[name] is None]
    results = {name: result for name, result in results.items() if result}
    held = [] if args.quick else bars(results)
    (args.out / "README.md").write_text(page(results, held))
    measure.table(held, COLUMNS)
    print(f"Wrote {args.out / 'README.md'}")
    print(f"missed, but of this processor: {', '.join(missed(held, binds=False)) or 'none'}")
    broken = missed(held, binds=True)
    if failed or broken:
        sys.exit(f"failed: {', '.join(failed) or 'none'}; missed: {', '.join(broken) or 'none'}")


if __name__ == "__main__":
    main()
