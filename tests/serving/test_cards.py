"""Model cards are for readers and hubs, and an export replaces nothing but an earlier export."""

import json
import shutil

import keras
import pytest

from keras_capsule_poe.cards import check_replaceable, model_card, write_card, write_sums
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.hub import export_hub, export_keras, without_places
from keras_capsule_poe.portable import export_portable


class Halves(keras.Model):
    """Model with one endpoint, which is quick to export."""

    TITLE, ENDPOINTS, SHARED, image_shape = "Halves", {"encode": ("images",)}, {}, (4, 4, 1)
    view = None

    def build(self, input_shape=None):
        self.built = True

    def encode(self, images):
        return {"capsules": images / 2}


@pytest.fixture(scope="module")
def model():
    model = Halves()
    model.build()
    return model


def exported(folder, files=("encode.onnx",), sums=True):
    """An export with these files, as this version writes it or as earlier ones did."""
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_text("content")
    card = {
        "packages": {"keras-capsule-poe": "0.2.0"},
        "calls": {"encode": {}},
    }
    (folder / "model_card.json").write_text(json.dumps(card))
    (folder / "README.md").write_text("# Model")
    if sums:
        write_sums(folder)
    return folder


@pytest.mark.parametrize("sums", [True, False])
def test_an_earlier_export_may_be_replaced(tmp_path, sums):
    check_replaceable(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    check_replaceable(tmp_path / "empty")
    folder = exported(tmp_path / "onnx", sums=sums)
    check_replaceable(folder)
    (folder / "encode.onnx").unlink()
    check_replaceable(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda folder: (folder / "notes.txt").write_text("mine"), "notes.txt"),
        (lambda folder: (folder / "sub" / "a").mkdir(parents=True), None),
        (lambda folder: (folder / "README.md").write_text("# Mine"), "README.md"),
        (lambda folder: (folder / "encode.onnx").write_text("trained again"), "encode.onnx"),
        (lambda folder: (folder / "model_card.json").unlink(), "model_card.json"),
        (lambda folder: (folder / "model_card.json").write_text("{"), "model_card.json"),
        (lambda folder: (folder / "model_card.json").write_text("[]"), "model_card.json"),
        (lambda folder: (folder / ".hidden").write_text("mine"), ".hidden"),
    ],
)  # fmt: skip
def test_what_a_user_put_there_stays(tmp_path, change, named):
    folder = exported(tmp_path / "onnx")
    change(folder)
    if named is None:
        return check_replaceable(folder)
    with pytest.raises(BadUse, match=f"earlier export as it was written.*{named}"):
        check_replaceable(folder)


def test_files_beside_an_export_of_an_earlier_version_stay(tmp_path):
    folder = exported(tmp_path / "onnx", ("encode.onnx", "weights.onnx"), sums=False)
    with pytest.raises(BadUse, match="weights.onnx"):
        check_replaceable(folder)


@pytest.mark.parametrize("kind", ["onnx", "litert", "keras", "hub"])
def test_no_export_replaces_a_folder_of_the_user(model, tmp_path, kind):
    target = tmp_path if kind == "hub" else tmp_path / kind
    target.mkdir(exist_ok=True)
    (target / "mine.txt").write_text("mine")
    with pytest.raises(BadUse, match="mine.txt"):
        if kind == "hub":
            export_hub(model, target, {})
        elif kind == "keras":
            export_keras(model, tmp_path, {})
        else:
            export_portable(model, tmp_path, kind)
    assert [path.name for path in target.iterdir()] == ["mine.txt"]
    shutil.rmtree(target)
    target.write_text("a file")
    with pytest.raises(BadUse, match="Received: a file"):
        check_replaceable(target)


def front_matter(text):
    """Lines between the two marks at the top of a card, as a dict of values and lists."""
    assert text.startswith("---\n")
    found, key = {}, None
    for line in text.split("---\n")[1].splitlines():
        if line.startswith("- "):
            found[key].append(line[2:].strip('"'))
        else:
            key, _, value = line.partition(":")
            found[key] = value.strip().strip('"') or []
    return found


def test_front_matter_is_that_of_hubs(model, tmp_path):
    card = {
        **model_card(model), "format": "hub", "forms": ["keras", "onnx"], "license": "mit",
        "datasets": ["mnist", "my: own"],
    }  # fmt: skip
    card["metrics"] = {"net": {"held_out_accuracy": 0.99, "loss": 1}}
    card["endpoints"] = {"classify": ["images"]}
    (tmp_path / "samples.png").write_bytes(b"")
    write_card(tmp_path, card)
    text = (tmp_path / "README.md").read_text()
    found = front_matter(text)
    assert found["license"] == "mit" and found["library_name"] == "keras"
    assert found["pipeline_tag"] == "image-classification"
    assert found["datasets"] == ["ylecun/mnist", "my: own"] and found["metrics"] == ["accuracy"]
    assert {"capsule-networks", "onnx"} <= set(found["tags"])
    for words in (
        "![samples](samples.png)",
        "| accuracy | 0.99 |",
        "kcp.load(",
        "InferenceSession(",
    ):
        assert words in text


def test_no_path_of_this_machine_is_shared():
    found = without_places(
        {"config": {"dataset": "/home/me/cats", "n": [1, "/a/b"]}, "data": "x/y"}
    )
    assert found == {"config": {"dataset": "cats", "n": [1, "b"]}, "data": "x/y"}
