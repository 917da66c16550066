"""Names of any letters on any terminal and in any figure."""

import contextlib
import io
import sys

import numpy as np
import pytest
from matplotlib import font_manager

from keras_capsule_poe.charts import coupling_chart
from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.figures import image_figure, save_figure
from keras_capsule_poe.io import fonts
from keras_capsule_poe.io.pictures import chart_pixels, picture
from keras_capsule_poe.io.text import (
    class_word,
    for_terminal,
    printable,
    replaced_letters,
    width,
    writable,
)
from keras_capsule_poe.training.progress import Reporter

LONG = "a" * 45 + "b" * 45
NAMES = (r"$\frac{$", "a$b$c", LONG, "two\nlines", "red\x1b[31m", "T-shirt/top")


@pytest.mark.parametrize(
    ("name", "most", "shown"),
    [
        ("cat", None, "cat"),
        ("cat", 3, "cat"),
        ("猫", 2, "猫"),
        ("two\nlines\t\r\x07", None, r"two\nlines\t\r\x07"),
        ("\x1b[31mred", None, r"\x1b[31mred"),
        ("a\u2028b\u202ec", None, r"a\u2028b\u202ec"),
        (LONG, 11, "aaaa...bbbb"),
        ("猫" * 20, 11, "猫猫...猫猫"),
        ("e\u0301" * 3, 3, "e\u0301" * 3),
        ("name\udcff", None, r"name\xff"),
        ("name\ud83d", None, r"name\xed\xa0\xbd"),
        ("👩‍👧", None, "👩‍👧"),
        (7, None, "7"),
        ("abcdef", 1, "a...f"),
    ],
)
def test_names_are_on_one_line_and_not_too_long(name, most, shown):
    assert printable(name, most) == shown
    assert most is None or most < 5 or width(shown) <= most
    shown.encode()


def test_words_of_classes():
    words = [class_word(number, NAMES, 12) for number in (0, 2, 3, 9, np.int64(1))]
    assert words == [r"$\frac{$", "aaaaa...bbbb", r"two\nlines", "9", "a$b$c"]
    images = ImageSet(np.zeros((6, 8, 8, 1), np.uint8), np.arange(6), NAMES)
    line = ImageData(images, images).class_counts()
    assert "\n" not in line and "\x1b" not in line and LONG not in line


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_of_a_terminal_break_between_words(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    path = "/a/path-of/" + 50 * "letters-"
    text = f"{80 * 'word '}\n  {40 * 'word '}\n{path}"
    lines = for_terminal(text, Terminal()).split("\n")
    assert lines[-1] == path and all(width(line) <= columns for line in lines[:-1])
    assert " ".join(lines).split() == text.split()
    # A part of a list stays below its first line.
    assert lines[-2].startswith("    word")
    assert for_terminal(text, io.StringIO()) == text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_outputs_replace_what_they_cannot_write(encoding, monkeypatch):
    wanted = "猫" if encoding == "utf-8" else "?"
    streams = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2)]
    for name, stream in zip(("stdout", "stderr"), streams):
        monkeypatch.setattr(sys, name, stream)
    assert writable("猫") == wanted
    Reporter(verbose=2).note("猫")
    with replaced_letters():
        for stream in streams:
            print("猫", file=stream, flush=True)
    if encoding != "utf-8":
        with pytest.raises(UnicodeEncodeError):
            print("猫", flush=True)
    # A closed output is none of its business.
    with contextlib.suppress(ValueError), replaced_letters():
        sys.stderr.close()
    assert streams[0].buffer.getvalue().decode(encoding) == f"{wanted}\n{wanted}\n"


def texts(figure):
    from matplotlib.text import Text

    return {text.get_text(): text for text in figure.findobj(Text) if text.get_text()}


def test_names_in_figures_are_text_and_do_not_overlap(tmp_path):
    images = np.zeros((2, len(NAMES), 8, 8, 1))
    figure = image_figure([(images, ["x$y$", LONG], NAMES, "heading $x")], r"title $\frac{$")
    # It would raise at an unfinished formula.
    for kind in ("png", "svg", "pdf"):
        save_figure(tmp_path / f"a.{kind}", figure)
    found = texts(figure)
    assert {r"$\frac{$", r"two\nlines", r"red\x1b[31m"} <= found.keys() and LONG not in found
    boxes = [found[printable(name, 28)].get_window_extent() for name in NAMES]
    assert all(left.x1 < right.x0 for left, right in zip(boxes, boxes[1:]))
    top = found["heading $x"].get_window_extent().y0
    assert all(box.y1 < top for box in boxes)
    couplings = np.full((1, 3, 5, len(NAMES)), 1 / len(NAMES)) + np.arange(3)[:, None, None] / 99
    chart = coupling_chart(images[0, :1], couplings, [2], [f"image 0,\nlabel {LONG}"], NAMES)
    assert chart_pixels(chart).std() > 10
    assert all(width(line) <= 80 for text in texts(chart) for line in text.split("\n"))
    captions = [*NAMES, "x"][: len(images[0])]
    assert picture(list(images), captions=captions).width < 500


def test_short_labels_stay_level():
    images = np.zeros((1, 3, 8, 8, 1))
    heights = [
        image_figure([(images, None, names, None)]).get_figheight()
        for names in (("0", "1", "2"), ("5 as 3", "1", "2"), ("T-shirt/top", "1", "2"))
    ]
    assert heights[0] == heights[1] < heights[2]


@pytest.fixture
def no_cat(monkeypatch):
    """The fonts of this machine lack the letter 猫, and nobody has been told so."""
    own = font_manager.fontManager.ttflist
    lacking = [entry for entry in own if not fonts._has(entry.fname, "猫")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", lacking)
    caches = (fonts._font, fonts._say)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_letters_that_no_font_has_are_said_once(no_cat, tmp_path):
    with pytest.warns(UserWarning, match="No installed font has the letters 猫") as said:
        for _ in range(2):
            figure = image_figure([(np.zeros((1, 1, 8, 8, 1)), None, ["猫"], None)])
            save_figure(tmp_path / "a.png", figure)
            picture([np.zeros((1, 8, 8, 1))], captions=["猫"])
    assert len(said) == 1


def test_an_installed_font_shows_the_letters(no_cat, tmp_path):
    path = tmp_path / "Cats.ttf"
    make_font(path)
    font_manager.fontManager.addfont(path)
    figure = image_figure([(np.zeros((1, 1, 8, 8, 1)), None, ["猫"], None)])
    save_figure(tmp_path / "a.svg", figure)
    assert texts(figure)["猫"].get_fontfamily()[-1] == "Cats"
    shown = np.asarray(picture([np.zeros((1, 8, 8, 1))], captions=["猫"]))
    # The letter of this font is a filled square.
    assert (shown[:18] > 200).sum() > 30
    assert fonts.families("cat") == [] and fonts.font_file("cat") is None


def make_font(path):
    """Writes a font whose only letter 猫 is a filled square."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 1000), (1000, 1000), (1000, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square, names = pen.glyph(), [".notdef", "cat"]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord("猫"): "cat"})
    builder.setupGlyf(dict.fromkeys(names, square))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupNameTable({"familyName": "Cats", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
