"""Metrics of whole models, and their tables."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.evaluation.classification import classified, wilson_interval
from keras_capsule_poe.evaluation.page import write_report
from keras_capsule_poe.evaluation.report import cell, measure, tables, text_table


def test_tables_hold_every_figure(figures):
    found = {heading: (columns, rows) for heading, _, columns, rows in tables(figures())}
    assert found["Reconstruction"] == (["value"], [("Primary capsules", 0.1)])
    assert found["Nearest neighbours"][1] == []
    columns, rows = found["Samples"]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["Posterior"][columns.index("Purity")] == 0.9
    assert by_name["Full gaussian"][columns.index("Purity")] is None
    assert by_name["Classifier accuracy"] == (0.99,)


class Brightness:
    """Names an image by whether it is bright: a classifier of two classes."""

    TITLE = "Brightness"
    image_shape = (4, 4, 1)
    ENDPOINTS = {"classify": ("images",)}

    def classify(self, images):
        import keras

        mean = keras.ops.mean(images, axis=(1, 2, 3))
        sure = keras.ops.stack([1 - mean, mean], axis=1)
        return {"classes": keras.ops.cast(mean > 0.5, "int32"), "probabilities": sure}


def bright_images(labels):
    shown = np.zeros((5, 4, 4, 1), "uint8")
    shown[2:] = 255
    return ImageSet(shown, np.array(labels), ("dark", "bright"))


def test_a_classifier_has_an_accuracy_and_a_confusion_table(tmp_path):
    data = ImageData(bright_images([0, 0, 1, 1, 1]), bright_images([0, 0, 1, 1, 0]))
    found = measure(Brightness(), data)
    assert list(found) == ["accuracy", "errors", "confusion", "calibration", "reliability"]
    low, high = wilson_interval(4, 5)
    assert found["accuracy"] == {"accuracy": 0.8, "low": low, "high": high, "images": 5}
    assert found["confusion"] == {
        "dark": {"dark": 2, "bright": 1},
        "bright": {"dark": 0, "bright": 2},
    }
    low, high = wilson_interval(1, 3)
    assert found["errors"] == {
        "dark": {"error": 1 / 3, "low": low, "high": high, "wrong": 1, "images": 3},
        "bright": {"error": 0, **dict(zip(("low", "high"), wilson_interval(0, 2))),
                   "wrong": 0, "images": 2},
    }  # fmt: skip
    (_, _, columns, rows) = tables(found)[2]
    assert columns == ["dark", "bright"] and rows == [("dark", 2, 1), ("bright", 0, 2)]
    page = tmp_path / "page.html"
    write_report(page, Brightness(), data, "lamps", tables(found))
    assert "Brightness: lamps" in page.read_text() and "0.800" in page.read_text()
    assert "<span>dark as bright (1)</span>" in page.read_text()


def test_images_are_classified_once(tmp_path):
    data, asked = ImageData(*[bright_images([0, 0, 1, 1, 0])] * 2), []

    class Counting(Brightness):
        def classify(self, images):
            asked.append(images.shape)
            return super().classify(images)

    model = Counting()
    found = classified(model, data.test)
    figures = measure(model, data, found=found)
    write_report(tmp_path / "page.html", model, data, "lamps", tables(figures), found=found)
    # Traced once, for a chunk that is not whole.
    assert asked == [(5, 4, 4, 1)]
    assert measure(Brightness(), data) == figures


@pytest.mark.long
def test_a_model_of_both_kinds_one_test_image_and_labels_below_zero(
    model, image_set, tmp_path, monkeypatch
):
    sets = image_set(40, 1), image_set(1, 2)
    data = ImageData(*(ImageSet(images.images, images.labels - 3) for images in sets))

    def classify(model, images):
        lengths = model.code(images)["probabilities"][:, :2]
        return {"classes": lengths[:, 1] > lengths[:, 0], "probabilities": lengths}

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "classify", classify)
        found = measure(model, data, samples=0)
    assert {"reconstruction", "accuracy", "confusion"} <= set(found)
    assert found["probe"]["pixels"] in (0, 1) and found["neighbours"]["capsules"] in (0, 1)
    write_report(tmp_path / "page.html", model, data, "noise", tables(found))
    page = (tmp_path / "page.html").read_text()
    assert f'<th scope="row">{data.test.labels[0]}</th><td>1</td>' in page
    assert "mixture fitted to those that training visited." in page
    assert "Samples: single, posterior" in page and "Reconstructions" in page


@pytest.mark.long
def test_figures_are_of_the_fast_form_and_the_model_is_as_it_was(model, image_set, monkeypatch):
    data = ImageData(image_set(40, 1), image_set(20, 2))
    kind, said = type(model.autoencoder), []

    def watched(name):
        plain = getattr(kind, name)

        def method(autoencoder, *args, **kwargs):
            said.append((name, autoencoder._fast_contexts))
            return plain(autoencoder, *args, **kwargs)

        return method

    for name in ("encode", "decode"):
        monkeypatch.setattr(kind, name, watched(name))
    measure(model, data, samples=0)
    assert set(said) == {("encode", 1), ("decode", 1)}
    model.decode(np.zeros((1, model.capsules, model.dim), "float32"))
    assert said[-1] == ("decode", 0)
    unlabelled = ImageData(ImageSet(data.train.images), ImageSet(data.test.images))
    assert "negatives_posterior" in measure(model, unlabelled, samples=8)["signs"]


def test_rows_that_say_nothing_are_left_out_and_names_are_names():
    nothing = {"images": 0, "confidence": None, "accuracy": None}
    bins = {"0.0-0.5": nothing, "0.5-1.0": {"images": 2, "confidence": 0.9, "accuracy": 0.0}}
    counts = {"cat": {"cat": 0, "dog": 0}, "dog": {"cat": 1, "dog": 0}}
    found = tables({"reliability": bins, "confusion": counts, "clustering": {"kmeans": {"nmi": 1}}})
    assert [row[0] for *_, rows in found for row in rows] == ["0.5-1.0", "cat", "dog", "k-means"]


def test_cells():
    texts = {
        None: "-",
        "name": "name",
        12345: "12345",
        np.int64(7): "7",
        0.5: "0.500",
        np.float32(0.1): "0.100",
        0.000123456: "0.000123",
        0.0000123456: "1.23e-05",
        123.456: "123",
        999.7: "1000",
        -1234.5: "-1230",
        1.23456e7: "1.23e+07",
        0.0: "0.00",
        float("nan"): "nan",
        float("-inf"): "-inf",
        (12.345, 0.0678): "12.3 ± 0.0678",
    }
    assert [cell(value) for value in texts] == list(texts.values())
    assert cell([1.0, None]) == "1.00 ± -"


def test_columns_are_aligned():
    rows = [("frechet", 12.345, (0.5, 0.01)), ("classes", 7), ("a long name", None, "x")]
    assert text_table(["visited", "real"], rows).split("\n") == [
        "             visited            real",
        "frechet         12.3  0.500 ± 0.0100",
        "classes            7               -",
        "a long name        -               x",
    ]


def test_a_table_without_rows_is_its_header_and_values_without_a_column_are_refused():
    assert text_table(["a", "b"], []) == "  a  b"
    wide = text_table([f"a long name {k}" for k in range(9)], [("row", *range(9))], 60)
    parts = wide.split("\n\n")
    assert len(parts) == 3 and all(part.split("\n")[1].startswith("row") for part in parts)
    assert max(map(len, wide.split("\n"))) <= 60 and [*"012345678"] == [
        word for part in parts for word in part.split("\n")[1].split()[1:]
    ]
    with pytest.raises(ValueError, match="at most 1 values"):
        text_table(["a"], [("name", 1, 2)])
