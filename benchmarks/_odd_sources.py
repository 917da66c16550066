"""Data sets in every form that is read, whole, odd and damaged, written by a script.

A case is a kind, a name, a function that writes the data set into an empty folder and returns what
is loaded with the options, and what should come of it: the number of images and the class names,
or None where it is to be refused.
"""

import gzip
import os
import shutil
import struct
import zipfile

import numpy as np
from PIL import Image

SIZE, AB = 12, ("a", "b")
X = np.random.default_rng(0).integers(0, 256, (24, SIZE, SIZE), dtype=np.uint8)
Y = np.arange(24) % 2
NAMED = ("0", "1")


def picture(path, number=0, pages=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *more = (Image.fromarray(X[(number + k) % 24]) for k in range(pages))
    first.save(path, **({"save_all": True, "append_images": more} if more else {}))


def fill(root, classes=AB, n=6, first=0):
    for k, name in enumerate(classes):
        for i in range(n):
            picture(root / name / f"{i}.png", first + n * k + i)
    return root


def cases():
    """All of them."""
    yield from folders()
    yield from tables()
    yield from arrays()
    yield from packed()
    yield from of_datasets()


def folders():
    """Folders with more in them than images of classes."""

    def more(change, options=None):
        def make(root):
            fill(root)
            change(root)
            return root, options or {}

        return make

    def made(change, options=None):
        def make(root):
            change(root)
            return root, options(root) if options else {}

        return make

    for name in (
        *("@eaDir", "__MACOSX", "#recycle", "$RECYCLE.BIN", "System Volume Information"),
        *("lost+found", ".Trashes", ".AppleDouble", ".ipynb_checkpoints"),
    ):
        yield "folder", name, more(lambda root, name=name: picture(root / name / "0.png")), (12, AB)
        inside = more(lambda root, name=name: picture(root / "a" / name / "0.png"))
        yield "folder", f"{name} in a class", inside, (12, AB)
    for name in ("Thumbs.db", "desktop.ini", "._0.png", ".DS_Store"):
        write = more(lambda root, name=name: (root / "a" / name).write_bytes(b"no image"))
        yield "folder", name, write, (12, AB)
    for names in (("images", "masks"), ("imgs", "labels"), ("JPEGImages", "SegmentationClass")):
        yield "folder", " and ".join(names), made(lambda root, n=names: fill(root, n)), None
        chosen = made(
            lambda root, n=names: fill(root, n), lambda root, n=names: {"train_dir": root / n[0]}
        )
        yield "folder", f"{names[0]} chosen", chosen, (6, None)
    yield "folder", "mask and no_mask", made(lambda root: fill(root, ("mask", "no_mask"))), (
        12, ("mask", "no_mask"),
    )  # fmt: skip
    yield "folder", "a mask beside", more(lambda root: picture(root / "a" / "0_mask.png")), (12, AB)
    below = made(lambda root: [fill(root / name, ("images", "masks")) for name in AB])
    yield "folder", "masks below classes", below, (12, AB)
    for train, test, names in (
        (("Cat", "dog"), ("cat", "Dog"), ("Cat", "dog")),
        (("hot dog", "x"), ("hot_dog", "X"), ("hot dog", "x")),
        (("A", "a"), ("A", "a"), ("A", "a")),
    ):

        def spelled(root, train=train, test=test):
            fill(root / "train", train)
            fill(root / "test", test, first=12)

        yield "folder", f"{train} and {test}", made(spelled), (24, names)
    yield "folder", "an empty class", more(lambda root: (root / "c").mkdir()), (12, AB)
    single = more(lambda root: picture(root / "c" / "0.png", 20))
    yield "folder", "a class of one", single, (13, ("a", "b", "c"))
    for ending, n in (("tif", 15), ("gif", 15), ("png", 13), ("webp", 13)):
        moving = more(lambda root, e=ending: picture(root / "a" / f"pages.{e}", 12, pages=3))
        yield "folder", f"pages of {ending}", moving, (n, AB)

    def stack(root):
        picture(root / "stack.tif", pages=9)
        return root / "stack.tif", {}

    yield "folder", "one file of pages", stack, (9, None)
    for name, join in (
        ("a link to a folder", lambda root: (root / "test").symlink_to("train")),
        ("a hard link", lambda root: linked(root, os.link)),
        ("a link to a file", lambda root: linked(root, os.symlink)),
    ):
        yield "folder", name, made(lambda root, j=join: (fill(root / "train"), j(root))), None
    zero = more(lambda root: (root / "a" / "zero.png").symlink_to("/dev/zero"))
    yield "folder", "a device", zero, None
    zero = more(
        lambda root: (root / "a" / "zero.png").symlink_to("/dev/zero"), {"skip_broken": True}
    )
    yield "folder", "a device, skipped", zero, (12, AB)
    for name, write in (("a FIFO", os.mkfifo), ("a device", lambda p: p.symlink_to("/dev/zero"))):

        def special(root, write=write):
            write(root / "data")
            return root / "data", {}

        yield "folder", f"{name} as a data set", special, None


def linked(root, link):
    fill(root / "test", first=12)
    link(root / "train" / "a" / "0.png", root / "test" / "b" / "9.png")


def tables():
    """Files of labels, beside twelve images."""
    rows = [(f"{i}.png", AB[i % 2]) for i in range(12)]

    def text(form="{},{}\n", header="filename,label\n", found=rows):
        return header + "".join(form.format(*row) for row in found)

    good = {
        "plain": text(),
        "without a header": text(header=""),
        "semicolons": text("{};{}\n", "file;class\n"),
        "tabs": text("{}\t{}\n", "path\ttarget\n"),
        "quotes": text('"{}","{}"\n'),
        "a mark of UTF-8": "\ufeff" + text(),
        "lines of Windows": text().replace("\n", "\r\n"),
        "folders": text("photos/{},{}\n"),
        "folders of another machine": text("C:\\data\\{},{}\n"),
        "a column more": text("{},{},7\n", "filename,label,age\n"),
        "names without endings": text(found=[(str(i), AB[i % 2]) for i in range(12)]),
        "rows twice": text(found=rows * 2),
        "a row of no image": text(found=[*rows, ("99.png", "a")]),
        "other names": text(header="image_id,breed\n"),
    }
    bad = {
        "empty": "",
        "one column": text("{}\n", "filename\n"),
        "two columns more": text("{},{},7\n", "filename,one,two\n"),
        "two labels": text(found=[*rows, ("0.png", "b")]),
        "no image": text("no-{},{}\n"),
        "a label of none": text("{},\n"),
        "UTF-16": text().encode("utf-16"),
        "zeros": bytes(99),
    }

    def make(content):
        def written(root):
            for i in range(12):
                picture(root / "photos" / f"{i}.png", i)
            data = content if isinstance(content, bytes) else content.encode()
            (root / "labels.csv").write_bytes(data)
            return root / "photos", {"labels": root / "labels.csv"}

        return written

    for name, content in good.items():
        yield "table", name, make(content), (12, AB)
    yield "table", "some without a label", make(text(found=rows[:8])), (8, AB)
    for name, content in bad.items():
        yield "table", name, make(content), None
    for name, write in (
        ("missing", lambda path: None),
        ("a FIFO", os.mkfifo),
        ("a device", lambda path: path.symlink_to("/dev/zero")),
        ("a folder", lambda path: path.mkdir()),
    ):

        def special(root, write=write):
            picture(root / "photos" / "0.png")
            write(root / "labels.csv")
            return root / "photos", {"labels": root / "labels.csv"}

        yield "table", name, special, None


def idx(array, code=8):
    return struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape) + array.tobytes()


def arrays():
    """Archives of arrays with usual names, `.npy` and idx files."""
    for names, found in {
        ("images", "labels"): NAMED, ("images", "target"): NAMED, ("X", "y"): NAMED,
        ("x_train", "labels"): NAMED, ("data", "targets"): NAMED, ("arr_0", "arr_1"): NAMED,
        ("trainX", "trainY"): NAMED, ("train_images", "train_labels"): NAMED,
        ("faces", "ages"): None,
    }.items():  # fmt: skip

        def archive(root, names=names):
            np.savez(root / "a.npz", **dict(zip(names, (X, Y))))
            return root / "a.npz", {}

        yield "arrays", " and ".join(names), archive, (24, found)
    image, label = idx(X), idx(Y.astype("u1"))
    train, labels = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
    float_images = idx((X / 255).astype(">f4"), 13)
    for name, files, first, wanted in (
        ("idx", {train: image, labels: label}, train, (24, NAMED)),
        ("idx, a folder", {train: image, labels: label}, "", (24, NAMED)),
        ("idx, no labels", {train: image}, train, (24, None)),
        ("idx of floats", {train: float_images}, train, (24, None)),
        ("idx, with a dot", {"train-images.idx3-ubyte": image}, "", (24, None)),
        ("idx, labels alone", {labels: label}, labels, None),
        ("idx, few labels", {train: image, labels: idx(Y[:9].astype("u1"))}, train, None),
        ("idx, two sets", {f"a-{train}": image, f"b-{train}": image}, "", None),
        ("idx, empty", {train: b""}, train, None),
        ("idx, text", {train: b"no images" * 9}, train, None),
        ("idx, cut", {train: image[:-7]}, train, None),
        ("idx, cut in its header", {train: image[:9]}, train, None),
        ("idx, of a petabyte", {train: image[:4] + b"\xff" * 12}, train, None),
        ("idx, of another type", {train: idx(X.astype(">i4"), 12)}, train, None),
        ("npy", {"x.npy": npy(X), "y.npy": npy(Y)}, "x.npy", (24, NAMED)),
        ("npy, a folder", {"x.npy": npy(X), "y.npy": npy(Y)}, "", (24, NAMED)),
        ("npy of floats", {"x.npy": npy(X / 255)}, "x.npy", (24, None)),
        ("npy by columns", {"x.npy": npy(np.asfortranarray(X))}, "x.npy", (24, None)),
        ("npy of integers", {"x.npy": npy(X.astype("int64"))}, "x.npy", None),
        ("npy of objects", {"x.npy": npy(np.array([{}], object))}, "x.npy", None),
        ("npy, cut", {"x.npy": npy(X)[:-9]}, "x.npy", None),
        ("npy, text", {"x.npy": b"no array"}, "x.npy", None),
    ):
        for ending in ("", ".gz"):

            def make(root, files=files, first=first, ending=ending):
                for each, content in files.items():
                    data = gzip.compress(content) if ending else content
                    (root / f"{each}{ending}").write_bytes(data)
                return root / f"{first}{ending}" if first else root, {}

            yield "arrays", f"{name}{ending}", make, wanted


def npy(array):
    import io

    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def packed():
    """`.zip` files of folders."""

    def of(change):
        def make(root):
            (root / "in").mkdir()
            change(root / "in")
            return shutil.make_archive(str(root / "out"), "zip", root / "in"), {}

        return make

    def wrapped(root):
        fill(root / "photos")
        picture(root / "__MACOSX" / "photos" / "._0.png")

    def parts(root):
        fill(root / "train")
        fill(root / "test", first=12)

    yield "zip", "classes", of(fill), (12, AB)
    yield "zip", "wrapped", of(wrapped), (12, AB)
    yield "zip", "parts", of(parts), (24, AB)
    yield "zip", "no folders", of(lambda root: fill(root, (".",))), (6, None)
    yield "zip", "pages", of(lambda root: picture(root / "a.tif", pages=9)), (9, None)
    yield "zip", "idx", of(lambda root: (root / "x-idx3-ubyte").write_bytes(idx(X))), (24, None)
    yield "zip", "text", of(lambda root: (root / "notes.txt").write_text("no images")), None
    yield "zip", "masks", of(lambda root: fill(root, ("images", "masks"))), None
    yield "zip", "a broken image", of(lambda root: (fill(root), (root / "a/x.png").touch())), None
    for name, change in (
        ("empty", lambda content: b""),
        ("cut", lambda content: content[: len(content) // 2]),
        ("flipped", lambda content: content[:90] + bytes([content[90] ^ 255]) + content[91:]),
        ("no archive", lambda content: b"no archive" * 9),
    ):

        def damaged(root, change=change):
            path, options = of(fill)(root)
            with open(path, "rb") as file:
                content = file.read()
            with open(path, "wb") as file:
                file.write(change(content))
            return path, options

        yield "zip", name, damaged, None

    def outside(root):
        with zipfile.ZipFile(root / "out.zip", "w") as archive:
            for i in range(6):
                picture(root / "0.png", i)
                archive.write(root / "0.png", f"../../{AB[i % 2]}/{i}.png")
        return root / "out.zip", {}

    yield "zip", "paths that lead out", outside, (6, AB)


def of_datasets():
    """Objects and files of the package `datasets`; none without it."""
    try:
        import datasets
    except ImportError:
        return
    datasets.disable_progress_bars()

    def whole(n=24):
        kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(AB))}
        rows = {"image": [Image.fromarray(each) for each in X[:n]], "label": Y[:n]}
        return datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))

    def saved(root):
        whole().save_to_disk(root / "saved")
        return root / "saved", {}

    def parquet(root):
        os.environ["HF_DATASETS_CACHE"] = str(root / "cache")
        (root / "files").mkdir()
        whole().to_parquet(root / "files" / "train.parquet")
        return root / "files", {}

    def damaged(root):
        path, options = parquet(root)
        content = (path / "train.parquet").read_bytes()
        (path / "train.parquet").write_bytes(content[: len(content) // 2])
        return path, options

    parts = datasets.DatasetDict(train=whole(), test=whole(6))
    yield "datasets", "one", lambda root: (whole(), {}), (24, AB)
    yield "datasets", "parts", lambda root: (parts, {}), (30, AB)
    yield "datasets", "shuffled", lambda root: (whole().shuffle(seed=1), {}), (24, AB)
    yield "datasets", "saved", saved, (24, AB)
    yield "datasets", "parquet", parquet, (24, AB)
    yield "datasets", "a damaged file", damaged, None
    yield "datasets", "a stream", lambda root: (whole().to_iterable_dataset(), {}), None
    yield "datasets", "no images", lambda root: (whole().remove_columns("image"), {}), None
    yield "datasets", "no such column", lambda root: (whole(), {"column": "picture"}), None
