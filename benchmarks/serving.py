"""Start-up of the command line, sampling, and latency and throughput of the SavedModel.

Speed does not depend on what a model learned: without --model-dir, one is trained on a few
digits first. Usage: python benchmarks/serving.py [--model-dir DIR] [--json FILE]

With --calls N, whether one can rely on it instead: how much memory a process gains in the second
half of so many calls of all endpoints, with batches of several sizes, and how many answers to
eight threads at once differ from those to one. It fails where either is not nothing.
"""

import functools
import itertools
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import _children as children
import _measure as measure
import numpy as np
import tensorflow as tf

from keras_capsule_poe.serving import newest_version

CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]
SAMPLES = 10_000
COLUMNS = "case batch ms images_per_s extra_mb".split()
LASTING = "case calls gained_mb wrong".split()
THREADS, EACH = 8, 25
# What an allocator may keep of arrays that are long gone; a kilobyte a call would be as much.
FLAT_MB = 5


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


def answer(model, card, i):
    """What an endpoint answers to call number i, arrays by name: always the same."""
    endpoints = sorted(card["endpoints"].items())
    turn, which = divmod(i, len(endpoints))
    name, arguments = endpoints[which]
    batch, random = 1 + turn % 4, np.random.default_rng(i)
    values = {
        "images": random.random((batch, *card["image_shape"]), "float32"),
        "capsules": random.random((batch, *card.get("capsules", ())), "float32"),
        "capsule": turn % card.get("capsules", (1,))[0],
        "n": batch,
        "steps": turn % 3,
        "seed": i,
    }
    found = getattr(model, name)(*(values[argument] for argument in arguments))
    return {key: value.numpy() for key, value in found.items()}


def lasting_rows(version, calls):
    """Memory gained by many calls, and answers to several threads that are wrong."""
    model = tf.saved_model.load(str(version))
    card = json.loads((version / "model_card.json").read_text())
    held = []
    for i in range(calls):
        answer(model, card, i)
        # Of the second half. A buffer of some megabytes is there after one call and not after
        # the next, so it is the least of many moments that must not grow.
        if i >= calls // 2:
            held.append(measure.resident_mb())
    middle = len(held) // 2
    gained = min(held[middle:]) - min(held[:middle])
    yield {"case": "one thread", "calls": calls, "gained_mb": gained}
    asked = range(THREADS * EACH)
    expected = [answer(model, card, i) for i in asked]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(functools.partial(answer, model, card), asked))
    wrong = itertools.starmap(is_other, zip(found, expected))
    yield {"case": f"{THREADS} threads", "calls": len(asked), "wrong": sum(wrong)}


def is_other(found, expected):
    """Whether an answer is not the expected one, up to sums in another order."""
    return found.keys() != expected.keys() or not all(
        np.allclose(found[key], expected[key], rtol=1e-4, atol=1e-5) for key in expected
    )


def last(model, calls, path):
    """Reports `lasting_rows` of the model in a folder; exits with 1 where they are not nothing."""
    rows = children.in_child(lambda: list(lasting_rows(newest_version(model), calls)))
    measure.report(rows, LASTING, path)
    sys.exit(1 if rows[0]["gained_mb"] > FLAT_MB or rows[1]["wrong"] else 0)


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--model-dir", type=Path, help="a trained model")
    parser.add_argument("--calls", type=int, metavar="N", help="memory over N calls, and threads")
    args = parser.parse_args()
    if args.calls is not None and args.calls < 4:
        parser.error(f"--calls must be 4 or more. Received: {args.calls}")
    samples = 256 if args.quick else SAMPLES
    with tempfile.TemporaryDirectory() as folder:
        model = args.model_dir or Path(folder) / "model"
        if not args.model_dir:
            settings = ("--dataset", "digits", "--epochs", 1, "--limit", 256)
            seconds_of("train", "--model-dir", model, *settings)
        if args.calls:
            last(model, args.calls, args.json)
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
