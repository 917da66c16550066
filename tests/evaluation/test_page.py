"""The report page: well-formed, complete in itself, and with every value in its place."""

import base64
import io
import json
import types
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import ImageSet
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.evaluation import page as module
from keras_capsule_poe.evaluation.classification import BINS, calibration_metrics
from keras_capsule_poe.evaluation.page import (
    capsule_meaning,
    history_chart,
    reliability_chart,
    write_page,
)
from keras_capsule_poe.plotting import moved_capsule

VOID = {"meta", "img", "br", "hr", "link", "input"}
NASTY = 'a < b & "c" </main><script>'


class Page(HTMLParser):
    """Tags that must match, cells in the order of their rows, and pictures."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.rows, self.text = [], [], [], {}
        self.sources, self.links, self.ids, self.widths = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], "left open"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.sources += [attributes[name] for name in ("src", "srcset") if name in attributes]
        self.links += [attributes["href"]] if "href" in attributes else []
        self.ids += [attributes["id"]] if "id" in attributes else []
        style = attributes.get("style", "")
        self.widths += [style] if style.startswith("width:") and "%" in style else []
        if "url(" in style:
            self.sources.append(style.partition("url(")[2].partition(")")[0])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def pictures(self):
        for source in self.sources:
            head, _, data = source.partition(",")
            assert head == "data:image/png;base64", "a picture from elsewhere"
            with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as picture:
                yield np.asarray(picture)


def shaded(n, value, channels=1):
    return np.full((n, 28, 28, channels), value, "float32")


@pytest.fixture
def capsules():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.2, 0.4]])
    found = capsule_meaning(probabilities, np.array([1, 1, 0, 2]), shown=3)
    for capsule in found:
        capsule["images"] = shaded(3, 0.2)
        capsule["samples"] = shaded(4, 0.4)
        capsule["traversal"] = [shaded(5, 0.6), shaded(5, 0.8)]
        capsule["moves"] = ["height, R² 0.83", "dimension 4"]
        capsule["class_names"] = ("shirt", NASTY, "bag")
    return found


@pytest.fixture
def page(tmp_path, capsules):
    path = tmp_path / "page.html"
    table = (
        f"Table {NASTY}",
        "A note.",
        ["posterior", NASTY],
        [("frechet", 0.123456, (12.345, 0.0678)), ("missing", None), (NASTY, 7, "x&y")],
    )
    rows = [shaded(2, 0.0, 3), shaded(2, 1.0, 3)]
    pictures = [("Samples", f"Caption {NASTY}", rows, [NASTY, "row 1"], [NASTY, "column 1"])]
    more = [("Samples", "The same heading.", rows)]
    facts = [("seed", NASTY)]
    write_page(path, NASTY, [table], pictures + more, capsules, facts, f"A summary {NASTY}")
    assert list(tmp_path.iterdir()) == [path]
    return Page(path.read_text("utf-8"))


def test_text_is_escaped_and_nothing_comes_from_elsewhere(page):
    # All tags are closed in order, or the parser had failed; no text became a tag.
    (script,) = page.text["script"]
    assert 'querySelectorAll(".explore")' in script and "link" not in page.tags
    assert page.tags.count("main") == 1
    assert page.text["title"] == [NASTY] and page.text["h1"] == [NASTY]
    assert f"Table {NASTY}" in page.text["h2"]
    assert f"Caption {NASTY}" in page.text["figcaption"]
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(set(page.ids)) == len(page.ids) == 6
    assert page.text["p"][0] == f"A summary {NASTY}"
    (style,) = page.text["style"]
    assert "url(" not in style and "@import" not in style
    assert "prefers-color-scheme: dark" in style
    assert "http" not in script and "import" not in script


def test_capsules_come_first_then_pictures_then_tables(page):
    assert page.text["h2"] == ["Capsules", "Samples", "Samples", f"Table {NASTY}"]
    assert page.text["dt"] == ["seed"] and page.text["dd"] == [NASTY]


def test_rows_and_columns_have_names(page):
    assert {NASTY, "row 1", "column 1"} <= set(page.text["span"])


def test_values_are_in_their_rows(page):
    assert page.rows[-4:] == [
        ["", "posterior", NASTY],
        ["frechet", "0.123", "12.3 ± 0.0678"],
        ["missing", "-", "-"],
        [NASTY, "7", "x&y"],
    ]
    assert "A note." in page.text["p"]


def test_pictures_hold_their_images(page):
    *found, last, again = page.pictures()
    np.testing.assert_array_equal(last, again)
    cell = 2 * (28 + 2)
    assert last.shape == (2 * cell + 4, 2 * cell + 4, 3)
    assert (last[10, 10] == 0).all() and (last[cell + 10, 10] == 255).all()
    thumbnails, others = found[:2], found[2:]
    assert [picture.shape for picture in thumbnails] == [(28, 28)] * 2
    # Two capsules with their images, samples and traversal, which the browser magnifies.
    sizes = [(cell + 4, 3 * cell + 4), (cell + 4, 4 * cell + 4), (2 * 30 + 2, 5 * 30 + 2)]
    assert [picture.shape for picture in others] == sizes * 2
    assert [picture[10, 10] for picture in others] == [51, 102, 153] * 2
    assert others[2][30 + 10, 10] == 204


def test_classes_are_bars_the_most_frequent_first(page):
    assert page.rows[:3] == [[NASTY, "2", ""], ["shirt", "1", ""], ["bag", "1", ""]]
    assert page.widths == ["width:66.7%", "width:33.3%", "width:100.0%"]
    assert {"capsule-0", "capsule-1"} <= set(page.ids)
    shares = [text for text in page.text["p"] if "winning capsule" in text]
    assert "75.0%" in shares[0] and "25.0%" in shares[1]


def test_many_classes_are_cut_short(tmp_path):
    probabilities = np.ones((13, 1))
    capsules = capsule_meaning(probabilities, np.arange(13))
    write_page(tmp_path / "a.html", "t", [], [], capsules)
    page = Page((tmp_path / "a.html").read_text("utf-8"))
    assert [row[0] for row in page.rows] == [str(number) for number in range(10)]
    assert "and 3 rarer classes" in page.text["p"]


def test_a_page_of_little(tmp_path):
    path = tmp_path / "a.html"
    # No labels, no pictures, an empty note and caption.
    capsules = capsule_meaning(np.ones((2, 1)))
    write_page(path, "t", [("h", "", ["a"], [])], [("p", "", [shaded(1, 0.5)])], capsules)
    page = Page(path.read_text("utf-8"))
    assert len(list(page.pictures())) == 1 and "figcaption" not in page.tags
    assert page.rows == [["", "a"]]
    write_page(path, "t", [], [], [])
    assert "nav" not in Page(path.read_text("utf-8")).tags


def test_unwritable_place_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFailed, match="page.html"):
        write_page(tmp_path / "file" / "page.html", "t", [], [], [])


PROBABILITIES = np.array(
    [
        [0.9, 0.1, 0.3],
        [0.8, 0.2, 0.1],
        [0.2, 0.7, 0.6],
        [0.5, 0.5, 0.4],  # a draw, which the first wins
        [0.1, 0.6, 0.2],
    ],
    "float32",
)


def test_top_images_share_and_classes():
    found = capsule_meaning(PROBABILITIES, np.array([2, 0, 1, 2, 3]), shown=2)
    assert [capsule["capsule"] for capsule in found] == [0, 1, 2]
    assert [capsule["top"] for capsule in found] == [[0, 1], [2, 4], [2, 3]]
    assert [capsule["share"] for capsule in found] == pytest.approx([3 / 5, 2 / 5, 0])
    assert [capsule["classes"] for capsule in found] == [[1, 0, 2, 0], [0, 1, 0, 1], [0, 0, 0, 0]]
    # Plain data, as JSON takes it.
    assert json.loads(json.dumps(found)) == found


def test_images_of_two_classes_count_for_both():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.4], [0.7, 0.1]])
    found = capsule_meaning(probabilities, np.array([[0, 2], [1, 2], [2, 0]]))
    assert [meaning["classes"] for meaning in found] == [[2, 0, 2], [0, 1, 1]]


def test_without_labels_and_with_few_images():
    found = capsule_meaning(PROBABILITIES, shown=10)
    assert found[0]["top"] == [0, 1, 3, 2, 4]
    assert all(capsule["classes"] is None for capsule in found)


class Mirror:
    """Two capsules that are drawn as they are decoded: into their codes."""

    TITLE, CODES, capsules, dim, image_shape = "Mirror", "ball", 2, 3, (2, 3, 1)
    ENDPOINTS = modes = {}

    def code(self, images):
        return {"capsules": images[..., 0], "probabilities": images[..., 0, 0]}

    encode = code

    def sample(self, n, seed, *where):
        codes = np.random.default_rng(seed).uniform(0.1, 0.5, (n, 2, 3)).astype("float32")
        return types.SimpleNamespace(capsules=codes)

    def render(self, capsules):
        return {"images": capsules[..., None]}


def test_the_page_moves_capsules_as_traverse_does(monkeypatch):
    monkeypatch.setattr(module, "draws", lambda model: {"joint": ("joint", None)})
    monkeypatch.setattr(Mirror, "draw", lambda *where: {}, raising=False)
    images = np.random.default_rng(1).integers(0, 256, (5, 2, 3, 1)).astype("uint8")
    labels = np.array([0, 1, 1, 1, 0])
    found = module._capsules(Mirror(), ImageSet(images, labels), 0)
    for capsule, meaning in enumerate(found):
        images, _, names = moved_capsule(Mirror(), capsule, None, 16, 9)
        np.testing.assert_array_equal(meaning["traversal"], images)
        assert meaning["moves"] == names
    assert "samples" not in found[0] and module._purity(found)[0].startswith("Purity ")
    assert module._purity(found[:1]) == []


EPOCHS = [
    {"loss": 0.5, "margin_loss": 0.4, "accuracy": 0.8, "val_accuracy": 0.7, "seconds": 9.0},
    {"loss": 0.3, "margin_loss": 0.2, "accuracy": 0.9, "val_accuracy": 0.8, "seconds": 8.0},
]


def test_a_panel_for_each_kind_of_number():
    titles = ["loss", "accuracy", "mean change of routing logits"]
    for more in ({}, {"logit_change_1": 0.1, "logit_change_2": 0.2}):
        panels = history_chart([{**epoch, **more} for epoch in EPOCHS]).axes
        assert [panel.get_ylabel() for panel in panels] == titles[: 3 if more else 2]
        lines = {line.get_label(): line for panel in panels for line in panel.get_lines()}
        assert list(lines["held-out accuracy"].get_ydata()) == [0.7, 0.8]
        assert list(lines["loss"].get_xdata()) == [1, 2] and "seconds" not in lines
        assert len(lines) == 4 + len(more)


def test_the_diagram_has_a_bar_for_each_bin_with_images():
    table = calibration_metrics(np.array([[0.9, 0.1], [0.89, 0.1], [0.3, 0.5]]), np.zeros(3, int))
    lengths, normalised = reliability_chart(table["reliability"]).axes
    assert [bar.get_height() for bar in lengths.patches] == [0, 1]
    assert [text.get_text() for text in lengths.texts] == ["1", "2"]
    assert lengths.patches[1].get_x() < 0.9 < lengths.patches[1].get_x() + 1 / BINS
    assert "normalised" in normalised.get_xlabel()
