"""Commands on the files of a model: `info` with its results in words, and `export`."""

import json
from pathlib import Path

import keras
import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.cli.export import show_results
from keras_capsule_poe.io.records import remove_record


def test_info_shows_configuration_and_stages(asked, tiny_model):
    shown = asked("info", "--model-dir", tiny_model)
    assert "seed 0, limit 96" in shown.splitlines()[0] and "capsules 3" in shown
    as_json = json.loads(asked("info", "--model-dir", tiny_model, "--json"))
    assert as_json["config"]["encoder"]["capsules"] == 3
    assert list(as_json["stages"]) == ["autoencoder", "features", "encoder", "decoder", "export"]


def test_info_says_that_a_model_cannot_be_loaded(asked, copied):
    assert "Cannot load" not in asked("info", "--model-dir", copied)
    (copied / "model.keras").write_bytes(b"damaged")
    words = ("model.keras", "is not what stage export wrote")
    asked("info", "--model-dir", copied, last=words)


def test_info_says_how_far_an_unfinished_run_is(asked, copied):
    (copied / "model.keras").unlink()
    remove_record(copied / "decoder" / "done.json")
    # What other programs leave is no checkpoint.
    for name in ("step-000000003", "step-abc", "step-\u00b2"):
        (copied / "decoder" / "checkpoints" / name).mkdir(parents=True)
    # Its hidden copy stands in for it.
    (copied / "run.json").unlink()
    shown = asked("info", "--model-dir", copied)
    assert "decoder: not finished; its last checkpoint is of step 3" in shown


def test_old_and_incomplete_saved_models_are_called_so(tmp_path, capsys):
    settings = registry.settings("rbm")
    (tmp_path / "2").mkdir()
    show_results(tmp_path, settings, lambda metrics: [])
    shown = capsys.readouterr().out
    assert "saved_model.pb is missing" in shown and "SavedModel:" not in shown
    (tmp_path / "2" / "saved_model.pb").touch()
    show_results(tmp_path, settings, lambda metrics: [])
    assert f"SavedModel of an earlier training: {tmp_path / '2'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "model, stages, words",
    [
        (
            "capsules",
            {
                "encoder": {
                    "capsules": {
                        "won": [0.5, 0.25, 0.25, 0.0], "class_coverage": 9, "classes": 10,
                        "purity": 0.75,
                    }
                },
                "decoder": {"val_relative_error": 0.15},
            },
            ["85%", "3 of 4 capsules", "9 of 10 classes", "75%"],
        ),
        ("neurons", {"experts": {"val_relative_error": 0.4, "won": [1.0]}}, ["60%", "1 of 1"]),
        ("rbm", {"rbm": {"val_relative_error": 0.2}}, ["80%"]),
        ("capsnet", {"capsnet": {"val_accuracy": 0.993}}, ["99.3% of the held-out images"]),
        ("capsnet", {"capsnet": {"val_accuracy": 0.2, "val_images": 15, "val_guessing": 0.1}},
         ["20.0% of 15", "no more than guesses may be (10%)"]),
        ("capsnet", {"capsnet": {"val_accuracy": 0.2, "val_images": 150, "val_guessing": 0.1}},
         ["20.0% of 150 held-out images are classified correctly."]),
        ("rbm", {"rbm": {"val_relative_error": 0.95}}, ["5%", "hardly more than their mean"]),
        ("matrix-capsules", {"matrix": {"val_accuracy": 0.5}}, ["50.0%"]),
        ("capsules", {}, []),
    ],
)  # fmt: skip
def test_results_are_told_in_words(model, stages, words):
    found = " ".join(registry.model_class(model).verdict(stages))
    assert all(word in found for word in words) and bool(found) == bool(words)


def test_export_writes_the_next_version(asked, tiny_model):
    versions = {int(p.name) for p in tiny_model.iterdir() if p.name.isdigit()}
    asked("export", "--model-dir", tiny_model, "--domain", "posterior")
    new = tiny_model / str(max(versions) + 1)
    assert json.loads((new / "model_card.json").read_text())["options"] == {"domain": "posterior"}
    words = "'prior', 'half_space', 'posterior' in mode 'single'"
    asked("export", "--model-dir", tiny_model, "--domain", "half", code=2, last=words)


def test_exports_of_pretrained_models_go_to_the_working_folder(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = []

    def write(model, place, card, options, pictures):
        assert card["license"] == "mit" and card["datasets"] == ["mnist"]
        # The folder of a pretrained model has none: it draws one.
        assert [path.name for path in pictures] == ["samples.png"]
        written.append(place)
        return place / "1"

    monkeypatch.setattr("keras_capsule_poe.serving.export_saved_model", write)
    asked("export", "--model", "mnist", last="Wrote mnist/1")
    asked("export", "--model", "mnist", "--out", tmp_path / "a", last="a/1")
    assert written == [Path("mnist"), tmp_path / "a"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--quantize", "int8"), "--quantize needs --format onnx or litert"),
        (("--format", "keras", "--batch-size", 2), "--batch-size needs --format onnx or litert"),
        (("--hub", "h", "--out", "o"), "--out does not go with --hub"),
        (("--hub", "h", "--format", "onnx"), "--format does not go with --hub"),
        (("--format", "onnx", "--data-dir", "d"), "--data-dir needs --quantize"),
        (("--format", "onnx", "--batch-size", 0), "0 is not in the range"),
        (("--format", "tflite"), "'tflite' is not one of"),
    ],
)
def test_options_that_do_not_go_together_are_refused(asked, arguments, words):
    asked("export", "--model", "mnist", *arguments, code=2, last=words)


def test_a_keras_file_has_a_card_and_nothing_else_is_replaced(asked, tiny_model, tmp_path):
    command = "export", "--model-dir", tiny_model, "--format", "keras", "--out", tmp_path
    asked(*command, "--license", "mit")
    text = (tmp_path / "keras" / "README.md").read_text()
    for words in (
        'license: "mit"', "pipeline_tag: unconditional-image-generation", "library_name: keras",
        "![samples prior](samples-prior.png)", "![reconstructions](", 'kcp.load("model.keras")',
        "| relative error |",
    ):  # fmt: skip
        assert words in text, text
    loaded = keras.models.load_model(tmp_path / "keras" / "model.keras")
    assert loaded.sample(2, seed=0).images.shape == (2, 28, 28, 1)
    asked(*command)
    assert "license" not in (tmp_path / "keras" / "README.md").read_text()
    (tmp_path / "keras" / "mine.txt").write_text("mine")
    asked(*command, code=2, last="mine.txt, which the export did not write so")
    assert (tmp_path / "keras" / "mine.txt").read_text() == "mine"
