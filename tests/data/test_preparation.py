"""New images become the pixels that training saw; arrays, polarity, padding and ranges."""

import dataclasses
import re
import struct
import warnings
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, load_images, read_image
from keras_capsule_poe.data.image_files import decode
from keras_capsule_poe.data.preparation import Preparation, prepare

RANDOM = np.random.default_rng(0)
# Colour types of PNG by channels.
_KINDS = {1: 0, 2: 4, 3: 2, 4: 6}


def png16(path, array):
    """Writes an array (H, W, C) as a PNG of 16 bits a channel, which Pillow cannot."""
    height, width, channels = array.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    header = struct.pack(">IIBBBBB", width, height, 16, _KINDS[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    text = b"\x89PNG\r\n\x1a\n"
    for name, data in parts:
        sums = struct.pack(">I", zlib.crc32(name + data))
        text += struct.pack(">I", len(data)) + name + data + sums
    path.write_bytes(text)


def tiff16(path, array, order="<", deflate=False, planar=1):
    """Writes an array (H, W, 3) as a TIFF of 16 bits a channel, which Pillow cannot."""
    height, width, channels = array.shape
    data = array.astype(f"{order}u2").tobytes()
    data = zlib.compress(data) if deflate else data
    bits = struct.pack(f"{order}3H", 16, 16, 16)
    start = 8 + len(bits) + 2
    tags = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, 8), (259, 3, 1, 8 if deflate else 1),
        (262, 3, 1, 2), (273, 4, 1, start), (277, 3, 1, channels), (278, 4, 1, height),
        (279, 4, 1, len(data)), (284, 3, 1, planar),
    ]  # fmt: skip
    table = struct.pack(f"{order}H", len(tags))
    for tag, kind, count, value in tags:
        short = kind == 3 and count == 1
        shown = struct.pack(f"{order}HH", value, 0) if short else struct.pack(f"{order}I", value)
        table += struct.pack(f"{order}HHI", tag, kind, count) + shown
    place = start + len(data) + len(data) % 2
    mark = b"II" if order == "<" else b"MM"
    head = mark + struct.pack(f"{order}HI", 42, place) + bits + b"\0\0"
    path.write_bytes(head + data + b"\0" * (len(data) % 2) + table + b"\0" * 4)


def values(channels, most, dtype=np.uint8, shape=(20, 20)):
    return RANDOM.integers(0, most + 1, (*shape, channels)).astype(dtype)


def saved(suffix, make, **keywords):
    """A writer of a file of Pillow's image of an array."""
    return suffix, lambda path: make().save(path, **keywords)


def picture(array, mode=None):
    array = array[..., 0] if array.shape[-1] == 1 else array
    image = Image.fromarray(array)
    return image.convert(mode) if mode else image


def ink():
    """Black ink on a transparent page."""
    array = np.zeros((20, 20, 4), np.uint8)
    array[5:15, 8:12, 3] = RANDOM.integers(100, 255, (10, 4))
    return picture(array)


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return {"exif": exif}


def animation(path):
    frames = [picture(values(1, 255)) for _ in range(3)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


FILES = {
    "transparent PNG": saved("png", ink),
    "12 bits in 16": saved("png", lambda: picture(values(1, 4095, np.uint16))),
    "float TIFF": saved("tif", lambda: picture(values(1, 4000, np.float32))),
    "small float TIFF": saved("tif", lambda: picture(values(1, 1000, np.float32) / 1000)),
    "palette": saved("png", lambda: picture(values(3, 255)).quantize(16)),
    "CMYK": saved("jpg", lambda: picture(values(3, 255), "CMYK")),
    "1 bit": saved("png", lambda: picture(values(1, 255), "1")),
    "turned JPEG": saved("jpg", lambda: picture(values(3, 255, shape=(20, 12))), **turned()),
    "animated GIF": ("gif", animation),
    "grey and alpha": saved("png", lambda: picture(values(2, 255))),
    "12 bits of grey and alpha": ("png", lambda path: png16(path, values(2, 4095, np.uint16))),
    "12 bits of RGB": ("png", lambda path: png16(path, values(3, 4095, np.uint16))),
    "12 bits of RGBA": ("png", lambda path: png16(path, values(4, 4095, np.uint16))),
    "12 bits of RGB in a TIFF": ("tif", lambda path: tiff16(path, values(3, 4095, np.uint16))),
    "RGB": saved("png", lambda: picture(values(3, 255))),
    "wide": saved("png", lambda: picture(values(1, 255, shape=(10, 30)))),
}
OPTIONS = {
    "as they are": {},
    "grey": {"grey": True},
    "resized": {"image_size": (24, 16)},
    "on white": {"background": "white", "max_value": 5000},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_the_training_folder_has_the_pixels_of_training(tmp_path, kind, options):
    suffix, write = FILES[kind]
    paths = [tmp_path / f"{number}.{suffix}" for number in range(5)]
    for path in paths:
        write(path)
    data = load_images(tmp_path, **OPTIONS[options])
    trained = np.concatenate([data.train.images, data.test.images])
    preparation = data.preparation.completed(data.train.images)
    assert preparation == Preparation.from_dict(dataclasses.asdict(preparation))
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = read_image(path, preparation)
        assert (trained == found).all(axis=(1, 2, 3)).any(), preparation
    assert trained.max() > 200 and len({image.tobytes() for image in trained}) >= 5


def test_a_store_keeps_how_its_files_were_read(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(4):
        FILES["12 bits of RGBA"][1](folder / f"{number}.png")
    given = {"image_size": 12}
    plain, stored = (load_images(folder, store=s, **given) for s in (None, tmp_path / "store"))
    assert stored.preparation == plain.preparation
    assert plain.preparation.max_value == 4095 and plain.preparation.keeps_proportions
    FILES["wide"][1](folder / "9.png")
    for store in (None, tmp_path / "store"):
        assert not load_images(folder, store=store, **given).preparation.keeps_proportions


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("deflate", [False, True])
def test_colours_of_16_bits_keep_all_of_them(tmp_path, order, deflate):
    array = values(3, 65535, np.uint16)
    tiff16(tmp_path / "a.tif", array, order, deflate)
    np.testing.assert_array_equal(decode(tmp_path / "a.tif").values, array)
    for channels in (1, 2, 3, 4):
        array = values(channels, 65535, np.uint16)
        png16(tmp_path / "a.png", array)
        np.testing.assert_array_equal(decode(tmp_path / "a.png").values, array)
    tiff16(tmp_path / "a.tif", values(3, 65535, np.uint16), order, deflate, planar=2)
    with pytest.raises(DataError, match="a.tif has a plane for each colour"):
        read_image(tmp_path / "a.tif")


def test_former_runs_read_colours_as_they_did(tmp_path):
    array = values(3, 65535, np.uint16)
    for name in ("a.png", "b.png"):
        png16(tmp_path / name, array)
    former = load_images(tmp_path, data_version=2).train.images[0]
    np.testing.assert_array_equal(former, array >> 8)
    now = load_images(tmp_path).train.images[0]
    np.testing.assert_array_equal(now, np.rint(array / 257))


def test_a_transparent_colour_of_16_bits(tmp_path):
    array = np.full((20, 20, 3), 4000, np.uint16)
    array[:, :10] = 100
    path = tmp_path / "a.png"
    png16(path, array)
    text, key = path.read_bytes(), struct.pack(">3H", 4000, 4000, 4000)
    chunk = struct.pack(">I", 6) + b"tRNS" + key + struct.pack(">I", zlib.crc32(b"tRNS" + key))
    place = text.index(b"IDAT") - 4
    path.write_bytes(text[:place] + chunk + text[place:])
    found = read_image(path, max_value=4000, background="black")
    assert found[0, 0].tolist() == [6, 6, 6] and found[0, 15].tolist() == [0, 0, 0]


def light_on_dark(n=20, shape=(28, 28, 1)):
    images = np.zeros((n, *shape), np.uint8)
    images[:, 6:22, 12:16] = 200
    return images


def drawing(ink, paper, size=(28, 28)):
    """A line of ink on paper, size in pixels across and down."""
    image = Image.new("L", size, paper)
    width, height = size
    image.paste(ink, (int(0.42 * width), height // 5, int(0.58 * width), 4 * height // 5))
    return image


DARK = Preparation(keeps_proportions=True).completed(light_on_dark())
LIGHT = Preparation(keeps_proportions=True).completed(255 - light_on_dark())
PHOTOS = Preparation(keeps_proportions=True).completed(values(3, 255, shape=(30, 28, 28)))
SAID = "dark on light: inverted"


@pytest.mark.parametrize(
    ("preparation", "image", "invert", "notes"),
    [
        (DARK, drawing(255, 0), "auto", ()),
        (DARK, drawing(0, 255), "auto", (SAID,)),
        (DARK, drawing(0, 255), "no", ()),
        (DARK, drawing(0, 255), "yes", (SAID,)),
        (DARK, drawing(255, 0), "yes", ("inverted",)),
        (DARK, drawing(0, 255, (800, 300)), "auto", ("padded to a square", SAID)),
        (DARK, drawing(40, 180, (300, 800)), "auto", ("padded to a square", SAID)),
        (DARK, drawing(255, 0, (800, 300)), "auto", ("padded to a square",)),
        (DARK, drawing(0, 255, (285, 280)), "auto", (SAID,)),
        (LIGHT, drawing(255, 0), "auto", ("light on dark: inverted",)),
        (LIGHT, drawing(0, 255, (100, 200)), "auto", ("padded to a square",)),
        (PHOTOS, drawing(0, 255), "auto", ()),
        (Preparation(), drawing(0, 255), "auto", ()),
    ],
)
def test_polarity_and_proportions(preparation, image, invert, notes):
    found = prepare(image, preparation, invert=invert)
    assert found.notes == notes
    if preparation in (DARK, LIGHT):
        # The line is narrow; all else has the colour of the paper, also what was padded.
        shown = found.pixels if np.median(found.pixels) < 128 else 255 - found.pixels
        assert shown.shape == (28, 28, 1) and np.median(shown) < 90
        assert (shown > 180).mean() > 0.02
    if preparation is DARK and invert != "no":
        assert (np.median(found.pixels) < 128) is np.bool_("inverted" not in notes)


@pytest.mark.parametrize("odd", [1, 3])
def test_no_training_image_is_inverted(odd):
    images = light_on_dark(40)
    images[:odd] = 230
    preparation = Preparation().completed(images)
    assert preparation.invert_above == 230
    for image in images:
        assert prepare(image, preparation).notes == ()
    assert prepare(drawing(0, 255), preparation).notes == (SAID,)


def test_a_long_strip_is_padded_in_little_memory():
    found = prepare(np.full((2, 60_000), 7, np.uint8), DARK)
    assert found.pixels.shape == (28, 28, 1) and (found.pixels == 7).all()
    tall = dataclasses.replace(DARK, image_size=(20, 10))
    assert prepare(np.zeros((20, 20)), tall).notes == ("padded to 20x10 pixels",)


UNITS = np.linspace(0, 1, 400).reshape(20, 20)
ARRAYS = {
    "(H, W)": UNITS,
    "(H, W, 1)": UNITS[..., None],
    "(H, W, 3)": np.repeat(UNITS[..., None], 3, axis=2),
    "RGBA": np.dstack([UNITS, UNITS, UNITS, np.ones((20, 20))]),
    "uint8": np.rint(UNITS * 255).astype(np.uint8),
    "uint16 of 12 bits": np.rint(UNITS * 4095).astype(np.uint16),
    "int64 of 8 bits": np.rint(UNITS * 255).astype(np.int64),
    "bool": UNITS > 0.5,
    "float16": UNITS.astype(np.float16),
    "a list": UNITS.tolist(),
    "Pillow": Image.fromarray(np.rint(UNITS * 255).astype(np.uint8)),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays(kind):
    found = read_image(ARRAYS[kind], grey=True)
    wanted = UNITS > 0.5 if kind == "bool" else UNITS
    assert found.dtype == np.uint8 and found.shape == (20, 20, 1)
    assert np.abs(found[..., 0] - wanted * 255.0).max() <= 1


def test_files_that_are_no_paths(tmp_path):
    image = picture(values(1, 255))
    image.save(tmp_path / "a.png")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "a.png", "a.png")
    member = zipfile.Path(tmp_path / "a.zip", "a.png")
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), member, member.read_bytes()):
        np.testing.assert_array_equal(read_image(source)[..., 0], np.asarray(image))


def test_pages(tmp_path):
    pages = [np.full((20, 20), 50 * page, np.uint8) for page in range(3)]
    first, *more = map(Image.fromarray, pages)
    for name in ("a.tif", "a.gif"):
        first.save(tmp_path / name, save_all=True, append_images=more)
        for page in range(3):
            assert abs(int(read_image(tmp_path / name, page=page).mean()) - 50 * page) <= 1
        with pytest.raises(DataError, match=f"{name} has no page 3"):
            read_image(tmp_path / name, page=3)


REFUSED = {
    "NaN": (np.full((20, 20), np.nan), "NaN"),
    "floats above 1": (2 * UNITS, r"floats in \[0, 1\].*from 0 to 2"),
    "negative": (-ARRAYS["int64 of 8 bits"], "integers in .*from -255"),
    "zeros and ones": ((UNITS > 0.5).astype(np.uint8), "astype.bool"),
    "one axis": (np.zeros(20), r"shape \(H, W\)"),
    "a batch": (np.zeros((2, 20, 20, 1)), r"shape \(H, W\)"),
    "five channels": (np.zeros((20, 20, 5)), r"shape \(H, W\)"),
    "no pixel": (np.zeros((0, 20)), r"shape \(H, W\)"),
    "words": (np.full((20, 20), "a"), "integers or floats"),
    "missing": ("nowhere.png", "nowhere.png cannot be read: No such file"),
    "URL": ("https://a.org/b.png", "is a URL: download"),
    "null byte": ("a\0b.png", "cannot be read"),
    "empty name": ("", "cannot be read"),
    "broken": (b"no image", "the image is broken or no image"),
    "no bytes": (b"", "the image is broken or no image"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind):
    image, words = REFUSED[kind]
    with pytest.raises(DataError, match=words) as caught:
        read_image(image)
    assert "\n" not in str(caught.value)


def test_refused_files_and_arguments(tmp_path, monkeypatch):
    (tmp_path / "empty.png").touch()
    with pytest.raises(DataError, match="empty.png is broken or no image: it is empty"):
        read_image(tmp_path / "empty.png")
    with pytest.raises(DataError, match=f"{tmp_path} is a folder"):
        read_image(tmp_path)
    picture(values(1, 255)).save(tmp_path / "a.png")
    for options, words in (
        ({"invert": "maybe"}, "`invert` must be auto, yes or no"),
        ({"background": "red"}, "`background` must be black or white"),
        ({"image_size": 0}, "`image_size` must be an integer or a pair"),
        ({"image_size": (1, 2, 3)}, "`image_size` must be"),
        ({"model": "mnist"}, "`model` must be a trained model"),
    ):
        with pytest.raises(DataError, match=words):
            read_image(tmp_path / "a.png", **options)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match="a.png is too large"):
        read_image(tmp_path / "a.png")


def deep(folder, *highest, dtype=np.uint16):
    """Images of more than 8 bits with these largest values."""
    folder.mkdir(exist_ok=True)
    for number, most in enumerate(highest):
        array = values(1, most, dtype)
        array[0, 0] = most
        picture(array).save(folder / f"{number:02}.tif")
    return folder


@pytest.mark.parametrize(
    ("highest", "dtype", "options", "white", "words"),
    [
        ([4000] * 4, np.uint16, {}, 4095, "up to 4000: 4095 is white"),
        ([3000] * 4, np.float32, {}, 4095, "Images of floats hold values up to 3000: 4095"),
        ([3000] * 4, np.float32, {"max_value": 3000}, 3000, ""),
        ([3000] * 12 + [65535], np.uint16, {}, 65535, "dark but for 1 of 13, .*12.tif first"),
        ([200] * 12 + [4095], np.uint16, {}, 4095, "dark but for 1 of 13"),
        ([200] * 12 + [4095], np.float32, {}, 4095, "dark but for 1 of 13"),
        ([300] * 4 + [65535] * 3, np.uint16, {}, 65535, "dark but for 3 of 7"),
        ([1] * 4, np.float32, {"max_value": 9}, 1, "`max_value` changes nothing for images of fl"),
        ([60000] * 4, np.uint16, {}, 65535, ""),
        ([255] * 4, np.int32, {}, 255, "255 is white"),
        ([0, 0, 900, 900], np.uint16, {}, 1023, "up to 900: 1023 is white"),
    ],
)
def test_ranges(tmp_path, highest, dtype, options, white, words):
    data = load_images(deep(tmp_path / "a", *highest, dtype=dtype), **options)
    name = "max_float" if dtype == np.float32 else "max_value"
    assert getattr(data.preparation, name) == white
    text = "\n".join(data.notes)
    if not words:
        assert not text
    else:
        assert re.search(words, text), text


def test_a_largest_value_without_a_use_is_said(tmp_path):
    for name in "ab":
        picture(values(1, 255)).save(tmp_path / f"{name}.png")
    data = load_images(tmp_path, max_value=9)
    assert data.notes == ("`max_value` changes nothing: no image has more than 8 bits.",)
    assert data.preparation.background is None


def test_values_out_of_range_have_a_remedy(tmp_path):
    with pytest.raises(DataError, match="01.tif must hold integers in .* to 100000") as caught:
        load_images(deep(tmp_path / "a", 100_000, 100_000, dtype=np.int32))
    assert caught.value.hint == "max_value"
    data = load_images(tmp_path / "a", max_value=100_000)
    assert data.train.images.max() > 250


def test_a_model_folder_is_described():
    words = DARK.describe()
    assert words == "28x28 grey, padded to these proportions, dark on light is inverted"
    other = Preparation((8, 9), 3, "white", 4095, 100)
    assert other.describe() == (
        "8x9 colour, transparent on white, 4095 is white in images of more than 8 bits, "
        "100 is white in images of floats, stretched"
    )


@pytest.mark.parametrize(
    "values", [{"image_size": 5}, {"image_size": "ab"}, {"channels": "x"}, {"background": 5}]
)
def test_a_preparation_of_other_types_is_refused(values):
    name = next(iter(values))
    with pytest.raises(DataError, match=f"`{name}` of the preparation .* Received: "):
        Preparation.from_dict({"keeps_proportions": True, "of_later_versions": 3, **values})
