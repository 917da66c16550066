"""Run the tutorials, which are scripts in the percent format, and write them as notebooks.

Usage: python tools/notebooks.py [NAME ...]
"""

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
# Seconds that a cell may take.
TIMEOUT = 1800


def cleaned(outputs):
    """Join the printed text of a cell, keep the last state of each line, and drop the log."""
    kept, text = [], ""
    for output in outputs:
        if output["output_type"] != "stream":
            kept.append(output)
        elif output["name"] == "stdout":
            text += output["text"]
    lines = [line.rstrip("\r").split("\r")[-1].rstrip() for line in text.split("\n")]
    printed = "\n".join(lines).strip("\n")
    if printed:
        kept.insert(0, nbformat.v4.new_output("stream", name="stdout", text=printed + "\n"))
    return kept


def main():
    for path in sorted(TUTORIALS.glob("*.py")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        notebook = jupytext.read(path)
        notebook.metadata["kernelspec"] = {
            "name": "python3", "display_name": "Python 3", "language": "python",
        }  # fmt: skip
        NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3").execute()
        for number, cell in enumerate(notebook.cells):
            # Random identifiers would differ from run to run.
            cell["id"] = f"cell-{number}"
            cell.metadata = {}
            if cell["cell_type"] == "code":
                cell["outputs"] = cleaned(cell["outputs"])
        nbformat.write(notebook, path.with_suffix(".ipynb"))
        print(f"Wrote {path.with_suffix('.ipynb')}")


if __name__ == "__main__":
    main()
