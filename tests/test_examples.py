"""The scripts in examples/ run as their docstrings say, each in a process of its own."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def run(folder, name, *arguments, before="", **environment):
    """What an example prints; `before` is Python that runs ahead of it."""
    path = str(EXAMPLES / name)
    program = f"{before}\nimport runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program, path, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
