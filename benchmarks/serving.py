"""Start-up of the command line, sampling, and latency and throughput of the SavedModel.

Speed does not depend on what a model learned: without --model-dir, one is trained on a few
digits first. Usage: python benchmarks/serving.py [--model-dir DIR] [--json FILE]
"""

import functools
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE

import _children as children
import _measure as measure
import tensorflow as tf

from keras_capsule_poe.serving.saved_model import newest_version

CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]
SAMPLES = 10_000
COLUMNS = "case batch ms images_per_s extra_mb".split()


def seconds_of(*arguments, times=1):
    """Least seconds of a whole `capspoe` command.

    Raises:
        SystemExit: If it fails, with its message.
    """
    least = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        done = children.run([*CAPSPOE, *map(str, arguments)], stdout=PIPE, stderr=PIPE, text=True)
        least = min(least, time.perf_counter() - start)
        if done.returncode:
            sys.exit(f"capspoe {arguments[0]}: {done.stderr.strip()}")
    return least


def fetch(endpoint, name, *arguments):
    """One result of an endpoint, as an array."""
    return endpoint(*arguments)[name].numpy()


def endpoint_rows(version):
    """Milliseconds of the SavedModel's endpoints at batch 1 and 256, in this process."""
    start = time.perf_counter()
    model = tf.saved_model.load(str(version))
    rows = [{"case": "SavedModel load", "ms": 1e3 * (time.perf_counter() - start)}]
    shape = model.signatures["encode"].structured_input_signature[1]["images"].shape[1:]
    for batch in (1, 256):
        images = tf.random.stateless_uniform((batch, *shape), seed=(0, 0))
        codes = model.encode(images)["capsules"]
        calls = {
            "encode": functools.partial(fetch, model.encode, "capsules", images),
            "decode": functools.partial(fetch, model.decode, "images", codes),
            "reconstruct": functools.partial(fetch, model.reconstruct, "images", images),
            "sample": functools.partial(fetch, model.sample, "images", batch, 0),
        }
        for call in calls.values():
            call()
        extra = {name: measure.extra_peak_mb(call) for name, call in calls.items()}
        for name, ms in measure.times(calls, seconds=3.0).items():
            rows.append(
                {
                    "case": f"SavedModel {name}",
                    "batch": batch,
                    "ms": ms,
                    "images_per_s": 1e3 * batch / ms,
                    "extra_mb": extra[name],
                }
            )
    return rows


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--model-dir", type=Path, help="a trained model")
    args = parser.parse_args()
    samples = 256 if args.quick else SAMPLES
    with tempfile.TemporaryDirectory() as folder:
        model = args.model_dir or Path(folder) / "model"
        if not args.model_dir:
            settings = ("--dataset", "digits", "--epochs", 1, "--limit", 256)
            seconds_of("train", "--model-dir", model, *settings)
        out = Path(folder) / "samples.npz"
        grid = ("sample", "--model-dir", model, "--rows", 10, "--out", Path(folder) / "grid.png")
        rows = [
            {"case": "capspoe --help", "ms": 1e3 * seconds_of("--help", times=3)},
            {"case": "capspoe sample, a grid", "batch": 200, "ms": 1e3 * seconds_of(*grid)},
        ]
        seconds = seconds_of("sample", "--model-dir", model, "--out", out, "--n", samples)
        rows.append(
            {
                "case": f"capspoe sample --n {samples}",
                "batch": samples,
                "ms": 1e3 * seconds,
                "images_per_s": samples / seconds,
            }
        )
        rows += children.in_child(endpoint_rows, newest_version(model))
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
