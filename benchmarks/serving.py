"""Start-up of the command line, sampling, and latency and throughput of the SavedModel.

Needs a trained model; without one, a small one is trained on digits first (speed does not depend
on what it learned). Usage: python benchmarks/serving.py [--model-dir DIR] [--json FILE]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _measure as measure
import tensorflow as tf

from keras_capsule_poe.savedmodel import newest_version

CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]
SAMPLES = 10_000
COLUMNS = "case batch ms images_per_s extra_mb".split()


def command_ms(*arguments):
    """Milliseconds of a whole `capspoe` command, the best of three."""
    return min(_run(arguments) for _ in range(3))


def _run(arguments):
    start = time.perf_counter()
    subprocess.run([*CAPSPOE, *map(str, arguments)], check=True, capture_output=True)
    return 1e3 * (time.perf_counter() - start)


def endpoint_rows(version):
    """Milliseconds of the SavedModel's endpoints at batch 1 and 256, in this process."""
    model = tf.saved_model.load(str(version))
    shape = model.signatures["encode"].structured_input_signature[1]["images"].shape[1:]
    rows = []
    for batch in (1, 256):
        images = tf.random.stateless_uniform((batch, *shape), seed=(0, 0))
        calls = {
            "encode": lambda: model.encode(images)["capsules"].numpy(),
            "reconstruct": lambda: model.reconstruct(images)["images"].numpy(),
            "sample": lambda: model.sample(batch, 0)["images"].numpy(),
        }
        for call in calls.values():
            call()
        extra = {name: measure.extra_peak_mb(call) for name, call in calls.items()}
        for name, ms in measure.times(calls, seconds=4.0).items():
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-dir", type=Path, help="a trained model")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model_dir or Path(folder) / "model"
        if not args.model_dir:
            _run(("train", "--dataset", "digits", "--model-dir", model, "--epochs", 1, "--limit", 256))
        out = Path(folder) / "samples.npz"
        sampling = _run(("sample", "--model-dir", model, "--out", out, "--n", SAMPLES))
        rows = [
            {"case": "capspoe --help", "ms": command_ms("--help")},
            {
                "case": f"capspoe sample --n {SAMPLES}",
                "batch": SAMPLES,
                "ms": sampling,
                "images_per_s": 1e3 * SAMPLES / sampling,
            },
            *measure.in_child(endpoint_rows, newest_version(model)),
        ]
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
