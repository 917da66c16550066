"""Classifiers trained on some viewpoints and tested on all, through the commands.

Rejected: a split that is forgotten by a resume or by any other command; familiar errors that
count novel images; settings that are taken and do nothing; crops that change nothing.
"""

import json
import shutil

import keras
import numpy as np
import pytest

from keras_capsule_poe.data import load_images, viewpoints
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.evaluation.classification import (
    classified,
    classified_crops,
    wilson_interval,
)

SETTINGS = {"filters": 4, "types": 2, "coefficients": "uniform"}
SETTINGS |= {"augmentation": "norb", "classes": 5}
TINY = [part for name, value in SETTINGS.items() for part in ("--set", f"capsnet.{name}={value}")]
TINY += ["--set", "compute.precision=float32"]
TRAIN = ["train", "--model", "capsnet", "--recipe", "small", "--dataset", "viewpoints",
         "--epochs", 1, "--batch-size", 20, *TINY]  # fmt: skip
FAMILIAR = [15, 16, 17, 0, 1, 2]


def rendered_once(part):
    """Renders the same images once, and not for every command."""
    known = {}

    def once(numbers, sizes, first, size):
        key = (numbers.tobytes(), sizes, first, size)
        if key not in known:
            known[key] = part(numbers, sizes, first, size)
            for array in (known[key].images, known[key].labels, *known[key].extras.values()):
                array.setflags(write=False)
        return known[key]

    return once


@pytest.fixture(scope="module")
def views():
    """Of the 24,300 pairs as many as are seen from all sides, in few lights and from few above."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(viewpoints, "ELEVATIONS", np.array([30, 40, 50, 70]))
        patch.setattr(viewpoints, "LIGHTS", viewpoints.LIGHTS[:1])
        patch.setattr(viewpoints, "TESTED", 2)
        patch.setattr(viewpoints, "_part", rendered_once(viewpoints._part))
        yield 5 * 2 * 4 * 18


@pytest.fixture(scope="module")
def folder(views, capspoe, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "views"
    result = capspoe(*TRAIN, "--split", "azimuth", "--model-dir", path)
    assert result.exit_code == 0, result.output
    # A third of the images, 5% of them held out.
    assert f"228 training, 12 held-out and {views} test images of 48x48x2" in result.output
    return path


@pytest.mark.long
def test_it_is_remembered(folder, done, capspoe, tmp_path):
    assert json.loads((folder / "run.json").read_text())["config"]["split"] == "azimuth"
    assert "data set viewpoints split by azimuth, seed 0" in done("info")
    # These refuse images that are not those of the run.
    for command in ("reconstruct", "traverse", "segment"):
        done(command, "--out", tmp_path / f"{command}.png")
    again = capspoe(*TRAIN, "--split", "azimuth", "--model-dir", folder)
    assert again.exit_code == 0, again.output
    for other in (["--split", "elevation"], []):
        result = capspoe(*TRAIN, *other, "--model-dir", folder)
        assert result.exit_code == 1 and "split: 'azimuth' ->" in result.output, result.output


@pytest.mark.long
def test_familiar_and_novel_errors_apart(folder, done, tmp_path):
    test = load_images("viewpoints").test
    model = keras.models.load_model(folder / "model.keras", compile=False)
    is_familiar = np.isin(test.extras["label_azimuth"], FAMILIAR)
    assert is_familiar.sum() == 240 and len(test) == 720
    named = np.concatenate(
        [model.classify(to_pixels(part))["classes"] for part in np.split(test.images, 4)]
    )
    found, page = tmp_path / "figures.json", tmp_path / "page.html"
    said = done("evaluate", "--json", found)
    done("report", "--out", page)
    figures = json.loads(found.read_text())
    assert set(figures["views"]) == {"familiar", "novel"} and "crops" not in figures
    for name, rows in (("familiar", is_familiar), ("novel", ~is_familiar)):
        wrong, images = int(np.sum((named != test.labels)[rows])), int(rows.sum())
        low, high = wilson_interval(wrong, images)
        assert figures["views"][name] == {
            "error": wrong / images, "low": low, "high": high, "wrong": wrong, "images": images,
        }  # fmt: skip
    assert "Views\n" in said and "Novel" in said and "<h2>Views</h2>" in page.read_text()
    # Some of the images may be of one kind alone.
    done("evaluate", "--limit", 10)


@pytest.mark.long
def test_crops_are_averaged_by_all_models(folder, done, capspoe, tmp_path):
    test = load_images("viewpoints").test.head(100)
    model = keras.models.load_model(folder / "model.keras", compile=False)
    named = classified_crops(model, test)["classes"]
    assert np.any(named != classified(model, test)["classes"])
    found, twin = tmp_path / "figures.json", tmp_path / "twin"
    shutil.copytree(folder, twin)
    options = ("--limit", 100, "--crops", "--json", found)
    said = done("evaluate", *options)
    figures = json.loads(found.read_text())
    assert figures["accuracy"]["accuracy"] == np.mean(named == test.labels)
    assert figures["crops"] == {"of_each_image": 13} and "Of each image" in said
    # The other one names all as this one does, which it would not without crops.
    expected = {"only_this_right": 0, "only_other_right": 0, "p": 1}
    both = tmp_path / "compared.json"
    compared = capspoe("compare", folder, twin, *options[:-1], both)
    assert compared.exit_code == 0, compared.output
    assert json.loads(both.read_text())["mcnemar"][twin.name] == expected


@pytest.mark.long
def test_models_of_two_splits_have_no_mean(folder, capspoe, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    run = json.loads((twin / "run.json").read_text())
    run["config"]["split"] = "elevation"
    del run["digest"]
    (twin / "run.json").write_text(json.dumps(run))
    said = capspoe("compare", folder, twin)
    assert said.exit_code == 2, said.output
    assert "twin has the split elevation, not azimuth" in said.output.splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize("way", ["set", "file"])
def test_every_way_to_settings(views, way, capspoe, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text('split = "elevation"\n')
    given = {"set": ["--set", "split=elevation"], "file": ["--config", config]}[way]
    result = capspoe(*TRAIN, *given, "--dry-run", "--model-dir", tmp_path / "model")
    assert result.exit_code == 0, result.output
    # Three of four elevations.
    shown = "viewpoints, familiar elevations: 513 training, 27 held-out and 720 test images"
    assert shown in result.output


def test_the_network_has_as_many_classes_as_there_are_solids(views, capspoe, tmp_path):
    words = ["--model", "matrix-capsules", "--dataset", "viewpoints", "--dry-run", "--limit", 60]
    result = capspoe("train", *words, "--model-dir", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "window             32 x 32 x 2" in result.output
    assert "class capsules     1 x 1 x 5" in result.output


@pytest.mark.parametrize(
    "given, words",
    [
        (["--split", "light"], ["split must be 'azimuth' or 'elevation', or none", "'light'"]),
        (
            ["--set", "split=light", "--dry-run"],
            ["split must be 'azimuth' or 'elevation'", "'light'"],
        ),
        (
            ["--dataset", "digits", "--split", "azimuth"],
            ["the extra 'label_azimuth'", "of 'digits'. Omit --split."],
        ),
    ],
)
def test_views_that_there_are_not(views, given, words, capspoe, tmp_path):
    result = capspoe(*TRAIN, *given, "--model-dir", tmp_path / "model")
    last = result.output.strip().splitlines()[-1]
    assert result.exit_code == 2 and all(word in last for word in words), result.output
    assert not (tmp_path / "model" / "run.json").exists()
