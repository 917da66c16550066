"""Damaged and odd image files and archives, written by a script."""

import io
import os
import zipfile

import numpy as np
from PIL import Image

FORMATS = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "tif": "TIFF"}
SIZE = 24


def damages(content):
    """Bytes of a whole file, damaged in each way, by name."""
    middle = len(content) // 2
    flipped = bytearray(content)
    flipped[middle] ^= 0x55
    return {
        "cut to a tenth": content[: len(content) // 10],
        "cut to half": content[:middle],
        "without its last byte": content[:-1],
        "empty": b"",
        "zeroed": bytes(len(content)),
        "zeroed from the middle": content[:middle] + bytes(len(content) - middle),
        "flipped in the middle": bytes(flipped),
        "text": b"no image\n" * 20,
    }


def pixels(*shape, seed=0):
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, shape).astype("uint8")


def encoded(image, kind, **options):
    """A Pillow image as the bytes of a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def damaged_images():
    """Pairs of a name and the bytes of a file called so."""
    for ending, kind in FORMATS.items():
        whole = encoded(Image.fromarray(pixels(SIZE, SIZE, 3)), kind)
        for how, content in damages(whole).items():
            yield f"{how}.{ending}", content


def odd_images():
    """Triples of a name, the bytes of a file, and the shape that it should be read as."""
    grey, colour = Image.fromarray(pixels(SIZE, SIZE)), Image.fromarray(pixels(SIZE, SIZE, 3))
    deep = Image.fromarray(pixels(SIZE, SIZE).astype("uint16") * 257)
    turned = Image.Exif()
    turned[0x0112] = 6  # rotated by a quarter
    one, three = (SIZE, SIZE, 1), (SIZE, SIZE, 3)
    yield "one bit.png", encoded(grey.convert("1"), "PNG"), one
    yield "palette.png", encoded(colour.convert("P"), "PNG"), three
    yield "grey and alpha.png", encoded(grey.convert("LA"), "PNG"), one
    yield "alpha.png", encoded(colour.convert("RGBA"), "PNG"), three
    yield "print colours.jpg", encoded(colour.convert("CMYK"), "JPEG"), three
    yield "sixteen bit.png", encoded(deep, "PNG"), one
    yield "floats.tif", encoded(Image.fromarray(pixels(SIZE, SIZE) / np.float32(255)), "TIFF"), one
    yield "UPPER.PNG", encoded(grey, "PNG"), one
    yield "of another name.gif", encoded(colour, "PNG"), three
    yield "two pictures.gif", encoded(grey, "GIF", save_all=True, append_images=[grey] * 3), one
    yield "line\nbreak é.png", encoded(grey, "PNG"), one
    wide = Image.fromarray(pixels(SIZE, SIZE + 6, 3))
    yield "turned.jpg", encoded(wide, "JPEG", exif=turned), (SIZE + 6, SIZE, 3)


def odd_arrays():
    """Triples of a name, arrays for `numpy.savez`, and whether they can be used."""
    good = pixels(12, SIZE, SIZE)
    labels = np.arange(12) % 3
    unit = (good / 255).astype("float32")

    def changed(value):
        array = unit.copy()
        array[3, 4, 5] = value
        return {"images": array}

    yield "uint8", {"images": good}, True
    yield "with labels", {"images": good, "labels": labels}, True
    yield "labels as words", {"images": good, "labels": np.array(["a", "b", "c"])[labels]}, True
    yield "labels as bytes", {"images": good, "labels": np.array([b"a", b"b"])[labels % 2]}, True
    yield "labels as columns", {"images": good, "labels": np.eye(3)[labels]}, True
    yield "two labels an image", {"images": good, "labels": 1 - np.eye(3)[labels]}, True
    yield "labels with names", {"images": good, "labels": labels, "class_names": list("abc")}, True
    yield "labels with few names", {"images": good, "labels": labels, "class_names": ["a"]}, False
    yield "labels in a column", {"images": good, "labels": labels[:, None]}, True
    yield "float16", {"images": unit.astype("float16")}, True
    yield "float64, columns first", {"images": np.asfortranarray(unit, "float64")}, True
    yield "big-endian", {"images": unit.astype(">f4")}, True
    yield "colour", {"images": pixels(12, SIZE, SIZE, 3)}, True
    yield "both parts", {"x_train": good, "x_test": good[:4]}, True
    for name, value in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("1.5", 1.5)):
        yield name, changed(value), False
    yield "negative", changed(-0.1), False
    for kind in ("int64", "uint16", "bool", "complex64", "U3", "S3", "datetime64[s]"):
        yield kind, {"images": good.astype("int64").astype(kind)}, False
    yield "records", {"images": np.zeros((12, SIZE, SIZE), [("a", "u1"), ("b", "f4")])}, False
    yield "objects", {"images": np.array([{}, []], object)}, False
    for shape in ((0, SIZE, SIZE), (12, 0, SIZE), (12, SIZE, SIZE, 0), (SIZE, SIZE), (), (12,)):
        yield f"shape {shape}", {"images": np.zeros(shape, "uint8")}, False
    for channels in (2, 4):
        yield f"{channels} channels", {"images": pixels(12, SIZE, SIZE, channels)}, False
    yield "channels first", {"images": pixels(12, 3, SIZE, SIZE)}, False
    yield "five dimensions", {"images": pixels(2, 2, SIZE, SIZE, 1)}, False
    yield "one image", {"images": good[:1]}, False
    yield "parts of two sizes", {"x_train": good, "x_test": pixels(4, 30, 30)}, False
    yield "images called data", {"data": good}, True
    yield "no images", {"sizes": labels}, False
    yield "nothing", {}, False
    for name, wrong in (
        ("too few", labels[:5]),
        ("too many", np.arange(13)),
        ("below zero", labels - 1),
        ("fractions", labels / 2),
        (
            "numbers of labels that differ",
            np.eye(3)[labels] + (labels == 1)[:, None] * np.eye(3)[0],
        ),
        ("no label", np.zeros((12, 3), "int64")),
        ("times", np.array(["2020-01-01"] * 12, "datetime64[D]")),
        ("above int64", np.full(12, 2**64 - 1, "uint64")),
    ):
        # Any number names a class.
        is_good = name == "above int64"
        yield f"labels: {name}", {"images": good, "labels": wrong}, is_good


def archive(arrays):
    """Arrays as the bytes of an `.npz`."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def damaged_archives():
    """Pairs of a name and the bytes of an `.npz` that cannot be read."""
    whole = archive({"images": pixels(12, SIZE, SIZE)})
    yield from damages(whole).items()
    yield "an array alone", archive_member(pixels(12, SIZE, SIZE))
    for name, member in (
        ("a header of a petabyte", header(shaped(10**15))),
        ("a header below zero", header(shaped(-3))),
        ("a header that is no dict", header("[1, 2")),
        ("a header of code", header("__import__('os').getpid()")),
        ("a member of text", b"no array"),
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as members:
            members.writestr("images.npy", member)
        yield name, file.getvalue()


def archive_member(array):
    """An array as the bytes of an `.npy`."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def shaped(n):
    """What the header of an `.npy` of n bytes says."""
    return f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({n},)}}"


def header(text):
    """An `.npy` of this header and no data."""
    padded = text.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


def odd_folders(root):
    """Pairs of a name and a folder of twelve good images and something odd."""
    for name, make in {
        "a FIFO": lambda folder: os.mkfifo(folder / "pipe.png"),
        "a link to nothing": lambda folder: (folder / "link.png").symlink_to("nowhere"),
        "a link to itself": lambda folder: (folder / "link.png").symlink_to("link.png"),
        "a folder in a circle": lambda folder: (folder / "circle").symlink_to(folder),
        "a folder called as an image": lambda folder: (folder / "folder.png").mkdir(),
        "a hidden file": lambda folder: (folder / ".hidden.png").write_bytes(b"no image"),
        "a file of another kind": lambda folder: (folder / "notes.txt").write_text("mine"),
        "another size": lambda folder: Image.fromarray(pixels(9, 9)).save(folder / "small.png"),
    }.items():
        folder = root / name
        folder.mkdir()
        for i in range(12):
            Image.fromarray(pixels(SIZE, SIZE, seed=i)).save(folder / f"{i}.png")
        make(folder)
        yield name, folder


def folders_of_people(root):
    """Triples of a name, a folder, and the class names that it has; None if it is to be refused."""

    def fill(folder, seed=0, image=lambda pixels: Image.fromarray(pixels), ending="png"):
        for k, name in enumerate("ab"):
            (folder / name).mkdir(parents=True)
            for i in range(6):
                made = image(pixels(SIZE, SIZE, seed=seed + 10 * k + i))
                made.save(folder / name / f"{i}.{ending}")

    def of_parts(*names):
        def make(folder):
            for i, name in enumerate(names):
                fill(folder / name, 100 * i)

        return make

    def with_more(more):
        def make(folder):
            fill(folder)
            more(folder)

        return make

    def ink(pixels):
        alpha = np.where(pixels > 200, 255, 0).astype("uint8")
        return Image.fromarray(np.dstack([np.zeros((SIZE, SIZE, 3), "uint8"), alpha]))

    def run_inside(folder):
        (folder / "saved_models" / "run" / "pictures").mkdir(parents=True)
        (folder / "saved_models" / "run" / "run.json").write_text("{}")
        Image.fromarray(pixels(99, 99)).save(folder / "saved_models/run/pictures/0.png")

    def linked(folder):
        (folder / "c").symlink_to("a")
        (folder / "a" / "b").symlink_to(folder / "b")
        (folder / "b" / "a").symlink_to(folder / "a")

    for name, make, classes in (
        ("training and testing", of_parts("training", "testing"), ("a", "b")),
        ("seg_train and seg_test", of_parts("seg_train", "seg_test"), ("a", "b")),
        ("Train, Test and Dev", of_parts("Train", "Test", "Dev"), ("a", "b")),
        ("train alone", of_parts("train"), ("a", "b")),
        ("test alone", of_parts("test"), None),
        ("two of training", of_parts("train", "training", "test"), None),
        ("unknown parts", of_parts("fold1", "fold2"), None),
        ("a model inside", with_more(run_inside), ("a", "b")),
        ("links among classes", with_more(linked), ("a", "b")),
        ("ink on transparent", lambda folder: fill(folder, image=ink), ("a", "b")),
        ("ppm", lambda folder: fill(folder, ending="ppm"), ("a", "b")),
        ("jfif", lambda folder: fill(folder, ending="jfif"), ("a", "b")),
        (
            "12 bits",
            lambda folder: fill(
                folder, image=lambda p: Image.fromarray(p.astype("uint16") * 16), ending="tif"
            ),
            ("a", "b"),
        ),
        ("black", lambda folder: fill(folder, image=lambda p: Image.fromarray(0 * p)), None),
    ):
        folder = root / f"people {name}"
        folder.mkdir()
        make(folder)
        yield name, folder, classes
