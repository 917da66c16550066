"""`capspoe classify` and `capspoe encode`, `info`, and the same in Python."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

import keras_capsule_poe as kcp
from keras_capsule_poe.data import read_image
from keras_capsule_poe.data.preparation import Preparation

TRAIN = ("train", "--model", "capsnet", "--recipe", "small", "--epochs", 1, "--seed", 0)
SMALL = ("--set", "capsnet.filters=4", "--set", "capsnet.types=1", "--set", "capsnet.decoder=none")
CLASSES = ("猫", "a\nb")


def light_on_dark(path, upright, size=(20, 20)):
    """Writes a bright bar on black."""
    image = Image.new("L", size, 0)
    width, height = size
    box = (0.45, 0.2, 0.55, 0.8) if upright else (0.2, 0.45, 0.8, 0.55)
    image.paste(255, [int(part * side) for part, side in zip(box, (width, height) * 2)])
    image.putpixel((int(path.stem[-2:]) % width, 0), 30)
    path.parent.mkdir(exist_ok=True, parents=True)
    image.save(path)
    return path


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of two classes of bars."""
    folder = tmp_path_factory.mktemp("bars") / "bars"
    for number in range(16):
        for upright, name in enumerate(CLASSES):
            light_on_dark(folder / name / f"bar{number:02}.png", upright)
    return folder


@pytest.fixture(scope="module")
def classifier(capspoe, images):
    """Folder of a small network of class capsules."""
    path = images.parent / "capsnet"
    done = capspoe(*TRAIN, *SMALL, "--dataset", images, "--model-dir", path)
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def drawn(images):
    """A wide drawing, dark on light, and a bright bar."""
    folder = images.parent / "new"
    bar = light_on_dark(folder / "light00.png", True)
    wide = Image.new("L", (80, 30), 250)
    wide.paste(10, (36, 5, 44, 25))
    wide.save(folder / "dark.png")
    return bar, folder / "dark.png"


def test_classes_of_files(capspoe, asked, classifier, images, drawn):
    bar, dark = drawn
    shown = asked("classify", bar, dark, "--model-dir", classifier)
    lines = [line for line in shown.splitlines() if line.startswith(f"{bar}: ")]
    words = lines[0].removeprefix(f"{bar}: ").split(", ")
    assert sorted(word.rsplit(" ", 1)[0] for word in words) == [r"a\nb", "猫"]
    shares = [float(word.rsplit(" ", 1)[1]) for word in words]
    assert shares == sorted(shares, reverse=True)
    assert f"{dark}: padded to a square, dark on light: inverted" in shown
    assert f"{bar}: padded" not in shown
    one = asked("classify", bar, "--model-dir", classifier, "--top", 1)
    assert words[0] in one and words[1] not in one
    assert "inverted" not in asked("classify", dark, "--model-dir", classifier, "--invert", "no")
    assert "light00.png: inverted" in asked(
        "classify", bar, "--model-dir", classifier, "--invert", "yes"
    )


def in_json(result):
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def test_json(capspoe, classifier, drawn):
    first, second = in_json(capspoe("classify", *drawn, "--model-dir", classifier, "--json"))
    assert first["file"] == str(drawn[0]) and first["notes"] == []
    assert second["notes"] == ["padded to a square", "dark on light: inverted"]
    assert first["class"] == max(first["probabilities"], key=first["probabilities"].get)
    # Class folders are sorted by name.
    assert list(first["probabilities"]) == [r"a\nb", "猫"]
    assert first["class"] == list(first["probabilities"])[first["number"]]
    (found,) = in_json(capspoe("encode", drawn[0], "--model-dir", classifier, "--json"))
    assert found["capsule"] == first["number"]
    np.testing.assert_allclose(found["probabilities"], [*first["probabilities"].values()], 1e-5)


def test_folders_patterns_and_repetitions(asked, capspoe, classifier, images, drawn, tmp_path):
    (images / "notes.txt").write_text("no image")
    every = asked("classify", images, "--model-dir", classifier, "--top", 1)
    assert sum(line.startswith(str(images)) for line in every.splitlines()) == 32
    assert "Left out: 1 file of other kinds (1 .txt)." in every
    pattern = asked("classify", f"{drawn[0].parent}/*.png", "--model-dir", classifier, "--top", 1)
    assert all(f"{path}: " in pattern for path in drawn)
    twice = (drawn[0], drawn[0].parent, os.path.relpath(drawn[0]))
    result = capspoe("classify", *twice, "--model-dir", classifier, "--json")
    assert [row["file"] for row in in_json(result)] == [str(drawn[0]), str(drawn[1])]
    assert "Named twice, shown once: 2 files" in result.stderr


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(capspoe, asked, classifier, drawn):
    broken = drawn[0].parent / "broken.jpg"
    broken.write_bytes(b"no image")
    result = capspoe("classify", broken, drawn[0], "--model-dir", classifier, "--json")
    rows = in_json(result)
    assert result.exit_code == 1 and "error" in rows[0] and "class" in rows[1]
    assert "Error: 1 of 2 images could not be read." in result.stderr
    asked("classify", broken, "--model-dir", classifier, code=2, last="is broken or no image")
    broken.write_bytes(b"")
    asked("encode", broken, "--model-dir", classifier, code=2, last="it is empty")
    broken.unlink()


def test_bad_files_are_refused_before_the_model_is_loaded(asked, tmp_path, monkeypatch):
    def fail(*_):
        raise AssertionError("the model was looked for")

    monkeypatch.setattr("keras_capsule_poe.cli.options.find_model", fail)
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("nowhere.png", "There is no file nowhere.png"),
        ("no/*.png", "There is no file no/*.png"),
        (tmp_path / "empty", "holds no images"),
        ("https://a.org/a.png", "download it first"),
        ("-", "There is no file -"),
        ("two\nlines.png", r"There is no file two lines.png"),
    ):
        asked("classify", "--", name, code=2, last=words)
    asked("classify", code=2, last="Missing argument")
    asked("encode", "a.png", "--out", "codes.txt", code=2, last="must end in .npz")


def test_models_without_classes_name_the_other_command(asked, tiny_model, drawn):
    last = ("use capspoe encode", "Product of expert capsules")
    asked("classify", drawn[0], "--model-dir", tiny_model, code=1, last=last)
    model = kcp.load(tiny_model)
    assert not hasattr(model, "classify")
    with pytest.raises(AttributeError, match="knows no classes. `encode` returns"):
        model.classify([drawn[0]])
    import keras

    network = kcp.ConvClassifier(keras.layers.Flatten(), (2, 2, 1))
    with pytest.raises(AttributeError, match="has no capsules. `classify` returns"):
        network.encode(np.zeros((1, 2, 2, 1)))


def test_codes_of_files(asked, tiny_model, drawn, tmp_path):
    out = tmp_path / "codes.npz"
    shown = asked("encode", *drawn, "--model-dir", tiny_model, "--out", out)
    assert f"{drawn[0]}: capsule " in shown and f"Wrote {out}" in shown
    model = kcp.load(tiny_model)
    with pytest.warns(UserWarning, match="dark.png: padded to a square, dark on light: inverted"):
        codes = model.encode(list(drawn))
    with np.load(out) as kept:
        np.testing.assert_allclose(kept["capsules"], codes.capsules, atol=1e-6)
        np.testing.assert_allclose(kept["probabilities"], codes.probabilities, atol=1e-6)
        assert kept["files"].tolist() == [str(path) for path in drawn]


def test_files_and_arrays_in_python(tiny_model, drawn):
    model, image = kcp.load(tiny_model), np.zeros((28, 28), np.uint8)
    image[6:22, 12:16] = 255
    path = drawn[0].parent / "same.png"
    Image.fromarray(image).save(path)
    wanted = model.encode(image[None, ..., None]).capsules
    for same in (
        str(path), path, path.read_bytes(), [path], (path, path), Image.open(path), image,
        image[..., None], image / 255.0, [image], [image[..., None]], [image / 255.0],
        [image.astype(np.uint16) * 257], [image > 0], (each for each in [path]),
        [path, image[..., None].repeat(3, axis=2)], [path, image / 255.0],
    ):  # fmt: skip
        found = model.encode(same).capsules
        np.testing.assert_allclose(found, np.repeat(wanted, len(found), axis=0), atol=1e-5)
    assert model.reconstruct(str(path)).images.shape == (1, 28, 28, 1)
    assert model.free_energy([path])["free_energy"].shape == (1,)
    path.unlink()
    for bad, words in (
        ([path], "same.png cannot be read"),
        ("https://a.org/a.png", "is a URL"),
        ([np.full((28, 28), np.nan)], "NaN"),
        ([image, np.full((5, 5), np.nan)], "image 1 must not hold NaN"),
        (np.zeros((5, 28, 3)), r"must have shape \(N, 28, 28, 1\)"),
    ):
        with pytest.raises(kcp.data.DataError, match=words):
            model.encode(bad)


def test_classes_in_python(classifier, drawn):
    model = kcp.load(classifier)
    assert model.class_names == ("a\nb", "猫")
    with pytest.warns(UserWarning, match="inverted"):
        found = model.classify(list(drawn))
    assert found["names"] == [model.class_names[number] for number in np.asarray(found["classes"])]
    pixels = np.stack([read_image(drawn[0], model)])
    plain = model.classify(pixels)
    assert "names" not in plain
    np.testing.assert_allclose(plain["probabilities"], found["probabilities"][:1], atol=1e-6)


def test_a_model_keeps_how_its_images_were_prepared(asked, classifier, tiny_model, tmp_path):
    kept = json.loads((classifier / "run.json").read_text())["preparation"]
    whole = kcp.load(classifier)
    assert whole.preparation == Preparation.from_dict(kept)
    assert whole.preparation.invert_above == 127 and whole.preparation.keeps_proportions
    line = "new images: 20x20 grey, padded to these proportions, dark on light is inverted"
    shown = asked("info", "--model-dir", classifier)
    assert line in shown and r"classes: a\nb, 猫" in shown
    alone = tmp_path / "alone.keras"
    shutil.copy(classifier / "model.keras", alone)
    for copy in (kcp.load(alone), pickle.loads(pickle.dumps(whole))):
        assert copy.preparation == whole.preparation and copy.class_names == whole.class_names
    assert kcp.load(tiny_model).preparation.image_size == (28, 28)
    for name in kcp.pretrained_names():
        assert kcp.load(name).preparation.invert_above == 127


def test_models_of_former_versions_have_what_their_settings_say(small_product):
    model = small_product((20, 22, 1))
    assert model.preparation == Preparation((20, 22), 1, keeps_proportions=True)
    settings = type(model).SETTINGS(image_size=(20, 22), data_version=1, background="white")
    model.settings = settings
    former = {"background": "white", "max_value": 65535, "max_float": 1, "deep_colours": False}
    assert model.preparation == Preparation((20, 22), 1, **former)
    assert kcp.ProductOfExpertCapsules(capsules=2).preparation is None
