"""The page prepares a file in the browser as `prepare` does in Python."""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from keras_capsule_poe.data import preparation as python
from keras_capsule_poe.data.preparation import Preparation, prepare

SCRIPT = Path(python.__file__).parents[1].joinpath("explorer", "web", "src", "prepare.js").as_uri()
PROGRAM = f"""
import {{ asTraining }} from "{SCRIPT}";
let text = "";
for await (const part of process.stdin) text += part;
const found = JSON.parse(text).map(({{ data, width, height, size, how }}) => {{
  const made = asTraining({{ data: Uint8ClampedArray.from(data), width, height }}, size, how);
  return {{ pixels: Array.from(made.pixels), notes: made.notes }};
}});
console.log(JSON.stringify(found));
"""
GREY, PADDED = (28, 28, 1), {"keeps_proportions": True}
# Mode, width and height of a file; size of the model; preparation.
CASES = {
    "same size": ("L", 28, 28, GREY, {}),
    "smaller": ("L", 8, 8, GREY, {}),
    "larger": ("RGB", 200, 150, GREY, {}),
    "larger in one side": ("RGB", 28, 91, (28, 28, 3), {}),
    "enlarged colour": ("RGB", 7, 13, (32, 24, 3), {}),
    "one pixel": ("RGB", 1, 1, GREY, PADDED),
    "one row": ("RGB", 50, 1, GREY, PADDED),
    "tall": ("RGB", 50, 300, (28, 28, 3), PADDED),
    "tall and stretched": ("L", 40, 90, GREY, {}),
    "padded": ("RGB", 60, 31, (28, 28, 3), PADDED),
    "padded, half a pixel": ("L", 56, 5, GREY, PADDED),
    "nearly square": ("L", 100, 99, GREY, PADDED),
    "on white": ("RGBA", 33, 47, GREY, {"background": "white"}),
    "on black": ("RGBA", 33, 47, (20, 20, 3), {"background": "black"}),
    "on what gives contrast": ("RGBA", 40, 40, (20, 20, 3), {}),
    "dark on light": ("paper", 40, 40, GREY, {"invert_above": 127}),
    "light on dark": ("board", 40, 40, GREY, {"invert_below": 128}),
    "stereo pair": ("L", 40, 30, (28, 28, 2), PADDED),
}


def picture(mode, width, height):
    """Return a Pillow image of random pixels, in the middle of paper or of a board if so named."""
    random = np.random.default_rng(width)
    channels = {"L": 1, "RGB": 3, "RGBA": 4}.get(mode, 1)
    pixels = random.integers(256, size=(height, width, channels), dtype=np.uint8)
    if mode in ("paper", "board"):
        inner = pixels[8:-8, 8:-8].copy()
        pixels[:] = 250 if mode == "paper" else 5
        pixels[8:-8, 8:-8] = inner
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


@pytest.fixture(scope="module")
def in_browser():
    """Results of the page's script by case: pixels in [0, 255], and notes."""
    if not (node := shutil.which("node")):
        pytest.skip("needs Node")
    jobs = []
    for mode, width, height, size, how in CASES.values():
        data = np.asarray(picture(mode, width, height).convert("RGBA")).ravel().tolist()
        full = dataclasses.asdict(Preparation(**how))
        jobs.append({"data": data, "width": width, "height": height, "size": size, "how": full})
    command = [node, "--input-type=module", "--eval", PROGRAM]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout)))


@pytest.mark.parametrize("case", CASES)
def test_pixels_are_those_of_python(in_browser, case):
    mode, width, height, size, how = CASES[case]
    wanted = prepare(picture(mode, width, height), Preparation(size[:2], size[2], **how))
    found = in_browser[case]
    pixels = np.reshape(found["pixels"], size) * 255
    # Earlier versions of Pillow shrink the columns of tall images last, which rounds otherwise.
    most = 1 if int(PIL.__version__.split(".")[0]) >= 13 else 32
    assert np.abs(pixels - wanted.pixels).max() < most + 0.01
    assert len(found["notes"]) == len(wanted.notes)
