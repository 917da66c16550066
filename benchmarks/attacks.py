"""Odd arguments, requests to a page, and outputs over other files: refused, or done right.

A result is right if it is finite and has as many rows as were asked for. An output that changes a
file of the user, of a run, of its images or of its store is `otherwise`, see `_verdicts.py`.
Usage: python benchmarks/attacks.py [--json FILE]
"""

import functools
import http.client
import shutil
import tarfile
import warnings
from pathlib import Path

import _verdicts as verdicts
import keras
import numpy as np
from PIL import Image

import keras_capsule_poe as kcp
from keras_capsule_poe.explorer import explore
from keras_capsule_poe.explorer.server import Page
from keras_capsule_poe.io.records import read_record, write_record

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures"
NAN, INF = float("nan"), float("inf")
FAMILIES = ("capsules", "rbm", "capsnet")
# Arguments, and the number of images that come out: none if they mean nothing.
NUMBERS = [(value, None) for value in (1.5, None, "3", True, 0, -1, NAN, 10**9, 10**30, [2])]
NUMBERS += [(np.int64(2), 2), (3, 3)]
SEEDS = [(value, None) for value in (1.5, NAN, INF, True, "1", -1, 2**31, 2**63, [1])]
SEEDS += [(None, 2), (np.int64(3), 2)]
CAPSULES = [(value, None) for value in (NAN, 1.7, True, [0, 1], "a", -1, 99, (0,))]
WORDS = [(value, None) for value in (5, [1], {}, b"single", "wings", "")]
CALLS = ("encode", "classify", "reconstruct", "free_energy")
SETTINGS = [
    ("hidden", 10**9), ("epochs", 1.5), ("epochs", 0), ("seed", 2**31), ("seed", "a"),
    ("callbacks", 3), ("callbacks", [3]), ("folder", 5), ("verbose", "x"), ("preset", 5),
    ("limit", -1), ("image_size", (4, 0)), ("background", "wings"), ("max_value", 0),
    ("train_dir", "a"), ("test_dir", "b"), ("column", "a"), ("data_dir", "d"), ("labels", "x"),
    ("wings", 2), ("batch_size", 0), ("learning_rate", NAN), ("learning_rate", "fast"),
]  # fmt: skip


def cases(folder):
    """Triples of a kind, a name and a function, as in `_verdicts`; `folder` is empty."""
    make_files(folder)
    models = {family: kcp.load(folder / family) for family in FAMILIES}
    for family, model in models.items():
        yield from image_cases(family, model)
        if hasattr(model, "sample"):
            yield from sample_cases(family, model)
    yield from page_cases(folder, models["rbm"])
    yield from training_cases()
    yield from output_cases(folder)


def make_files(folder):
    """Write images, a trained model of each family, a run on these images, and files of a user."""
    random = np.random.default_rng(0)
    for k in range(40):
        place = folder / ("train", "test")[k % 2] / "ab"[k // 2 % 2] / f"{k}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (28, 28), dtype=np.uint8)).save(place)
    for family in FAMILIES:
        with tarfile.open(FIXTURES / f"a1ce340-{family}.tar.xz") as archive:
            archive.extractall(folder / "archive", filter="data")
        (folder / "archive" / "finished").rename(folder / family)
    shutil.copytree(folder / "rbm", folder / "own")
    places = {"train_dir": "train", "test_dir": "test"}
    paths = {name: str(folder / place) for name, place in places.items()}
    known = read_record(folder / "own" / "run.json")
    write_record(
        folder / "own" / "run.json", known | {"data_path": paths["train_dir"], "paths": paths}
    )
    (folder / "store" / "train-1").mkdir(parents=True)
    write_record(folder / "store" / "train-1" / "store.json", {})
    for name in ("my.png", "my.npz", "my.json", "my.html", "mine/my.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")


def sample_cases(family, model):
    """Arguments of `sample`, and codes to decode."""
    for name, values in (
        ("n", NUMBERS), ("seed", SEEDS), ("capsule", CAPSULES), ("mode", WORDS), ("domain", WORDS),
    ):  # fmt: skip
        for value, n in values:
            call = functools.partial(model.sample, **{"n": 2, name: value})
            yield "sample", f"{family}, {name}={value!r}", functools.partial(check, call, n)
    z = model.sample(2).capsules
    for name, value, n in (
        ("none", None, None), ("infinite", z * 0 + INF, None), ("NaN", z * NAN, None),
        ("a word", "a", None), ("a list", [[1]], None), ("a number", 5, None), ("one", z[0], None),
        ("huge", z * 0 + 1e30, None), ("large", z * 0 + 1e6, 2), ("no rows", z[:0], 0),
        ("bool", z > 0, 2),
        ("complex", z * 1j, None),
        ("objects", np.array(None), None), ("masked", np.ma.masked_array(z, z == z), None),
    ):  # fmt: skip
        call = functools.partial(model.decode, value)
        yield "decode", f"{family}, codes {name}", functools.partial(check, call, n)


def image_cases(family, model):
    """Arrays in place of images."""
    x = np.full((3, 28, 28, 1), 0.5, "float32")
    odd_pixels = [
        ("bytes as floats", 255 * x, None), ("below zero", x - 1, None), ("NaN", x * NAN, None),
        ("none", None, None), ("a word", "a", None), ("a number", 5, None), ("dict", {}, None),
        ("no rows", x[:0], 0), ("without channels", x[..., 0], 3), ("a line", x[0, 0, 0], None),
        ("one", x[0], 1), ("of another size", x[:, 2:], None), ("RGB", np.repeat(x, 3, -1), None),
        ("bytes", (x * 255).astype("uint8"), 3), ("doubles", x.astype("float64"), 3),
        ("300", (x * 600).astype("int64"), None), ("16 bits", (x * 65535).astype("uint16"), None),
        ("complex", x * 1j, None), ("object None", np.array([None]), None),
        ("masked", np.ma.masked_array(x, x > 0), None), ("lists", [[1, 2], [3]], None),
        ("a tensor of bytes", keras.ops.convert_to_tensor(255 * x), None),
        ("a tensor of NaN", keras.ops.convert_to_tensor(NAN * x), None),
    ]  # fmt: skip
    for endpoint in CALLS:
        for name, pixels, n in odd_pixels if hasattr(model, endpoint) else ():
            call = functools.partial(getattr(model, endpoint), pixels)
            yield "images", f"{family}.{endpoint}, {name}", functools.partial(check, call, n)


def page_cases(folder, model):
    """Requests to the server of a page, and arguments of `explore`."""
    (folder / "page" / "sub").mkdir(parents=True)
    for name, text in (("index.html", "page"), ("sub/a.js", "page"), ("../secret.txt", "secret")):
        (folder / "page" / name).write_text(text)
    page = Page(folder / "page")
    port = page.local_url.rsplit(":", 1)[1].strip("/")
    own = f"127.0.0.1:{port}"
    hosts = [own, f"localhost:{port}", "evil.com", f"evil.com:{port}", f"127.0.0.1.evil.com:{port}"]
    hosts += [
        "",
        f"0.0.0.0:{port}",
        f"localhost.evil:{port}",
        f"[::1]:{port}",
        f"LOCALHOST@x:{port}",
    ]
    for path, is_there in (
        ("/", True), ("/index.html", True), ("/sub/a.js", True), ("/sub/a.js?x=1", True),
        ("/sub/", False), ("/../secret.txt", False), ("/%2e%2e/secret.txt", False),
        ("//etc/passwd", False), ("/sub/../../secret.txt", False), ("/%00", False),
        ("/..%2fsecret.txt", False), ("/\\..\\secret.txt", False), ("/" + "a" * 5000, False),
    ):  # fmt: skip
        for host in hosts if path in ("/", "/sub/a.js") else (own,):
            is_right = is_there and host in hosts[:2]
            for method in ("GET", "HEAD"):
                call = functools.partial(try_request, port, method, path, host, is_right)
                yield "page", f"{method} {path[:40]} of {host!r}", call
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH"):
        call = functools.partial(try_request, port, method, "/index.html", own, False)
        yield "page", f"{method} /index.html", call
    for value in (-1, 70_000, "x", 1.5, True, NAN, [80], int(port)):
        call = functools.partial(explore, model, port=value)
        yield "page", f"port={value!r}", functools.partial(check, call, None)
    for name, value in (("images", "a"), ("images", 5), ("images", [[1]]), ("static", 5)):
        call = functools.partial(explore, model, **{"static": folder / "mine", name: value})
        yield "page", f"{name}={value!r}", functools.partial(check, call, None)
    yield "page", "no model", functools.partial(check, functools.partial(explore, 5), None)
    page.close()


def try_request(port, method, path, host, is_right):
    """Ask for a path; only a right request gets the file, and none a permission for others."""
    asked = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
    asked.putrequest(method, path, skip_host=True)
    for name, value in (("Host", host), ("Origin", "http://evil.com"), ("Content-Length", "0")):
        asked.putheader(name, value)
    asked.endheaders()
    answer = asked.getresponse()
    text = answer.read().decode(errors="replace")
    is_answered = answer.status == 200
    if is_answered != is_right or "secret" in text or answer.headers["Access-Control-Allow-Origin"]:
        raise verdicts.Wrong(f"status {answer.status}: {text[:80]}")


def training_cases():
    """Data and settings of `train` and `fit`, and paths of `load`."""
    x = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    train = functools.partial(kcp.train, model="rbm", verbose=0)
    for name, value in SETTINGS:
        call = functools.partial(train, x, **{"epochs": 1, name: value})
        yield "train", f"{name}={value!r}", functools.partial(check, call, None)
    call = functools.partial(kcp.train, x, capsules=10**9, epochs=1, verbose=0)
    yield "train", "capsules=10**9", functools.partial(check, call, None)
    for name, data in (
        ("None", None), ("5", 5), ("one image", x[:1]), ("no image", x[:0]), ("complex", x * 1j),
        ("masked", np.ma.masked_array(x, x > 200)), ("NaN", x * NAN), ("a constant", x * 0),
        ("", ""), ("words", np.full((40, 8, 8), "a")), ("of a line", x[0, 0]),
    ):  # fmt: skip
        call = functools.partial(train, data, epochs=1)
        yield "train", f"data {name}", functools.partial(check, call, None)
        call = functools.partial(kcp.ImageBoltzmannMachine(hidden=3).fit, data, epochs=1, verbose=0)
        yield "fit", f"data {name}", functools.partial(check, call, None)
    for path in (5, None, "", [], b"x", Path("nowhere"), "/dev/zero", "/dev/null", "no.keras", "/"):
        call = functools.partial(kcp.load, path)
        yield "load", repr(path), functools.partial(check, call, None)


def output_cases(folder):
    """Commands whose output lies where it must not."""
    for name in (
        "train/a/new.png", "test/a/1.png", "test/new.png", "store/train-1/new.png", "my.png",
        "own/rbm/x.png", "own/1/x.png", "mine/../test/b/x.png",
    ):  # fmt: skip
        yield from output_case(folder, "sample", "--rows", 1, "--out", name)
        yield from output_case(folder, "reconstruct", "--n", 2, "--out", name)
    for name in ("my.npz", "store/train-1/x.npz", "train/a/x.npz", "own/1/x.npz"):
        yield from output_case(folder, "sample", "--n", 2, "--out", name)
        yield from output_case(folder, "encode", folder / "test/a/0.png", "--out", name)
    yield from output_case(folder, "report", "--out", "my.html")
    yield from output_case(folder, "evaluate", "--json", "my.json")
    yield from output_case(folder, "evaluate", "--json", "store/train-1/x.json")
    for place in ("train", "test/a", "store/train-1", "own/rbm", "own/1"):
        for kind in ("saved_model", "keras", "onnx", "litert"):
            yield from output_case(folder, "export", "--format", kind, "--out", place)
    for place in ("train", "test", "store/train-1", "mine", "own/rbm"):
        yield from output_case(folder, "export", "--hub", place)
        yield from output_case(folder, "explore", "--static", place)


def output_case(folder, command, *words):
    """A command whose last word is a path in `folder`."""
    *words, name = words
    call = functools.partial(try_output, folder, (command, *words, folder / name))
    yield "output", " ".join(map(str, (command, *words, name))).replace(str(folder), "."), call


def try_output(folder, arguments):
    """Run a command that must be refused and change no file."""
    before = contents(folder)
    try:
        verdicts.try_command(folder / "own", arguments)
    finally:
        after = contents(folder)
        if changed := [name for name in before | after if before.get(name) != after.get(name)]:
            raise verdicts.Wrong(f"changed: {', '.join(changed[:3])}")


def contents(folder):
    """Return size and time of all files in a folder."""
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {str(path): (each.st_size, each.st_mtime_ns) for path, each in found}


def check(call, n):
    """Call; the results must be finite and of `n` rows. None: the call must be refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of other packages about each other.
        warnings.simplefilter("ignore", DeprecationWarning)
        found = call()
    if n is None:
        raise verdicts.Wrong(f"it was taken: {str(found):.80}")
    values = found if hasattr(found, "items") else {"": found}
    for name, value in values.items():
        value = np.asarray(value)
        if len(value) != n or not np.isfinite(value).all():
            raise verdicts.Wrong(f"{name} of shape {value.shape}, finite or not")


if __name__ == "__main__":
    verdicts.main(__doc__, lambda folder, args: cases(folder))
