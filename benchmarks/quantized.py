"""Accuracy, size and time a digit of a classifier's LiteRT file in float32 and in int8.

Both files are for one image a call, on one thread. Training images calibrate int8; the test images
only measure here. It fails if the accuracies differ by more than 0.2 points, if the file of int8 is
not about a quarter as large, or if it takes more than half the time.
Usage: python benchmarks/quantized.py --model-dir DIR [--images N] [--untimed]
"""

import functools
import sys
import tempfile
from pathlib import Path

import _measure as measure
import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_capsule_poe.cli import options
from keras_capsule_poe.portable import export_portable
from keras_capsule_poe.quantization import Images

COLUMNS = "file accuracy kb ms".split()
# Points of accuracy, and shares of the size and the time of float32. A quarter, and the graph.
POINTS, SIZE, TIME = 0.2, 0.27, 0.5


def runner(path):
    """Function of one image (1, H, W, C) that gives its class."""
    interpreter = Interpreter(str(path), num_threads=1)
    classify = interpreter.get_signature_runner("classify")

    # The runner does not keep its interpreter.
    def run(image, interpreter=interpreter):
        return classify(images=image)["classes"][0]

    return run


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--model-dir", type=Path, required=True, help="a trained classifier")
    parser.add_argument("--images", type=int, default=10_000, help="test images")
    parser.add_argument("--untimed", action="store_true", help="measure accuracy and size only")
    args = parser.parse_args()
    model, data = options.load_model(args.model_dir), options.load_run_data(args.model_dir)
    test = data.test.head(200 if args.quick else args.images)
    pixels = (np.asarray(test.images) / 255).astype("float32")
    rows, runs = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in (None, "int8"):
            how = {"batch_size": 1, "quantize": precision, "images": Images.of(data)}
            path, _ = export_portable(model, folder, "litert", **how)
            path = path / "classify.tflite"
            run = runner(path)
            found = [run(pixels[i : i + 1]) for i in range(len(pixels))]
            accuracy = 100 * float(np.mean(found == test.labels))
            name = precision or "float32"
            rows.append({"file": name, "accuracy": accuracy, "kb": path.stat().st_size / 1000})
            runs[name] = functools.partial(run, pixels[:1])
        if not args.untimed:
            for row in rows:
                row["ms"] = measure.times(runs, seconds=20, most=3000)[row["file"]]
    measure.report(rows, COLUMNS, args.json)
    before, after = rows
    failed = abs(before["accuracy"] - after["accuracy"]) > POINTS
    failed |= after["kb"] > SIZE * before["kb"]
    failed |= not args.untimed and after["ms"] > TIME * before["ms"]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
