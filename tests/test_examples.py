"""The scripts in examples/ run as their docstrings say, each in a process of its own."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(folder, name, *arguments, **environment):
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def unsupervised(tmp_path_factory):
    """What this example prints, of which another one loads the SavedModel."""
    return run(tmp_path_factory.mktemp("example"), "unsupervised_capsules.py")


def named(line, text):
    """The path that a line of output ends in."""
    return Path(re.search(rf"^{line}.*: (.+)$", text, re.MULTILINE)[1])


@pytest.mark.long
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_supervised_capsules(tmp_path, backend):
    text = run(tmp_path, "supervised_capsules.py", KERAS_BACKEND=backend)
    assert f"Backend {backend}" in text
    # Ten classes: far above a guess, and it is the loaded file that gives it.
    assert float(re.search(r"Test accuracy (\S+)", text)[1]) > 0.8


@pytest.mark.long
def test_unsupervised_capsules(unsupervised):
    with Image.open(named("Samples", unsupervised)) as grid:
        # Six columns and four rows of digits, twice enlarged, with gaps of two pixels.
        assert grid.size == (2 * (6 * 30 + 2), 2 * (4 * 30 + 2))
    assert "nan" not in unsupervised


@pytest.mark.long
def test_a_saved_model_elsewhere(unsupervised, tmp_path):
    text = run(tmp_path, "saved_model_elsewhere.py", named("SavedModel", unsupervised))
    assert "capsules (4, 6, 16) probabilities (4, 6)" in text
    assert "decoded (4, 28, 28, 1)" in text
    assert "samples (8, 28, 28, 1)" in text
    assert "keras" not in (EXAMPLES / "saved_model_elsewhere.py").read_text()


@pytest.mark.long
def test_fit_on_arrays(tmp_path):
    text = run(tmp_path, "fit_on_arrays.py")
    error = float(re.search(r"primary capsules: (\S+);", text)[1])
    assert error < 0.9 and "Samples(images: (8, 28, 28, 1)" in text
    assert (tmp_path / "samples.pdf").stat().st_size > 1000


@pytest.mark.long
def test_boat_or_house(tmp_path):
    text, found = run(tmp_path, "boat_or_house.py"), {}
    length = r"house (\S+), boat (\S+)"
    scene = rf"^(a .+): {length}; (.+); (.+)\n  after 101 iterations {length}$"
    for name, *lengths, couplings, verdict, house, boat in re.findall(scene, text, re.MULTILINE):
        found[name] = verdict
        lengths = [*map(float, lengths)], [float(house), float(boat)]
        # Of each part the house's share, then the boat's.
        shares = np.array(re.findall(r"\d\.\d\d", couplings), float).reshape(2, 2)
        if verdict == "refused":
            # Under one half, from afar, and for good; half of each part is of neither.
            assert np.max(lengths) < 0.25 and shares.sum(axis=1).max() < 0.53
        else:
            right = ("house", "boat").index(verdict.split(",")[0])
            assert min(row[right] for row in lengths) > 0.7 and shares[:, right].min() > 0.8
            assert max(row[1 - right] for row in lengths) < 0.05
    assert found == {
        "a house": "house, turned by 0 degrees",
        "a heeling boat": "boat, turned by -15 degrees",
        "a house upside down": "refused",
    }
    with Image.open(named("Votes and couplings", text)) as picture:
        pixels = np.asarray(picture)
    # A column of what is seen and four of 170 pixels; lines of both votes, and much white.
    assert pixels.shape[1] == 190 + 4 * 170
    for colour in ((31, 90, 180), (225, 110, 10)):
        assert np.mean(np.all(pixels == colour, axis=-1)) > 0.002
    assert 0.7 < np.mean(pixels.min(axis=-1) > 250) < 0.95


def test_every_example_is_tested():
    text = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in text
        assert f"python examples/{path.name}" in ast.get_docstring(ast.parse(path.read_text()))
