"""Commands that measure: `evaluate`, `compare` and `report`."""

import json

import numpy as np
import pytest

from keras_capsule_poe import pretrained, registry, runs
from keras_capsule_poe.cli import measure
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.evaluation.baselines import SETS
from keras_capsule_poe.evaluation.report import cell
from keras_capsule_poe.io.records import remove_record
from keras_capsule_poe.training import RunFolder


def test_evaluate_measures_and_writes_json(asked, tiny_model, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("CAPSPOE_CACHE", str(cache))
    path, page = tmp_path / "figures.json", tmp_path / "page.html"
    options, simple = ("--model-dir", tiny_model, "--limit", 40), ("--baselines", "simple")
    shown = asked("evaluate", *options, *simple, "--samples", 30, "--json", path)
    asked("report", *options, "--metrics", path, "--out", page)
    figures = json.loads(path.read_text())
    sections = {"reconstruction", "free_energy", "probe", "neighbours", "clustering", "samples"}
    assert set(figures) == {*sections, "signs", "written_by"}
    assert cell(figures["samples"]["posterior"]["FID"]) in shown
    assert cell(figures["samples"]["gaussian_mixture"]["coverage"]) in page.read_text()
    assert {"boltzmann_machine", "variational_autoencoder"}.isdisjoint(figures["samples"])
    energy = figures["free_energy"]
    # Sums of float32 means: the gap is their difference to rounding.
    assert energy["gap"] == pytest.approx(energy["test"] - energy["train"], abs=1e-4)
    # Pixels of digits are separable, so a probe on them beats chance (0.1) by far.
    assert figures["probe"]["pixels"] > 0.5
    assert cell(figures["reconstruction"]["whole_code"]) in shown


@pytest.mark.long
def test_evaluate_trains_baselines(asked, tiny_model, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("CAPSPOE_CACHE", str(cache))
    # One takes the model's own time if nothing is said.
    monkeypatch.setattr(measure, "own_seconds", lambda folder: 0.3)
    path = tmp_path / "figures.json"
    options = ("--model-dir", tiny_model, "--baselines", "trained", "--json", path)
    shown = asked("evaluate", *options, "--limit", 40, "--samples", 30)
    figures = json.loads(path.read_text())["samples"]
    assert "boltzmann_machine" in figures
    assert 0.3 <= figures["vae_seconds"] < 30 and figures["vae_steps"] > 0
    assert "Variational autoencoder" in shown
    # One sample of each kind has no spread.
    asked("evaluate", *options, "--limit", 20, "--samples", 1, "--vae-seconds", 0)
    figures = json.loads(path.read_text())["samples"]
    assert figures["posterior"]["FID"] is None and figures["real"]["confident"] in (0, 1)
    assert figures["boltzmann_machine"]["confident"] in (0, 1)
    assert "variational_autoencoder" not in figures


def test_a_baseline_takes_the_models_own_time_at_most(asked, tiny_model, monkeypatch):
    given = []
    monkeypatch.setattr(measure, "own_seconds", lambda folder: 7.0)
    monkeypatch.setattr(
        "keras_capsule_poe.evaluation.report.measure", lambda *_, **more: given.append(more) or {}
    )
    options = ("evaluate", "--model-dir", tiny_model)
    asked(*options, "--baselines", "trained")
    asked(*options, "--baselines", "trained", "--vae-seconds", 2)
    assert all(callable(each.pop("progress")) for each in given)
    expected = {"found": None, "baselines": "trained"}
    assert given == [{**expected, "vae_seconds": 7.0}, {**expected, "vae_seconds": 2.0}]
    shown = asked(*options, "--vae-seconds", 1, code=2)
    said = "--vae-seconds needs --baselines trained. Received: --baselines none"
    assert said in " ".join(shown.split())


def test_the_command_has_the_sets_of_baselines_that_there_are():
    (option,) = (each for each in measure.evaluate.params if each.name == "baselines")
    assert tuple(option.type.choices) == SETS


def test_a_stage_that_is_gone_is_named_where_its_time_is_asked_for(copied):
    remove_record(copied / "decoder" / "done.json")
    with pytest.raises(RunFailed, match="decoder contains no finished stage") as failed:
        measure.own_seconds(copied)
    assert failed.value.hint == "stage_fresh:decoder"


@pytest.mark.long
def test_compare_measures_each_model_as_evaluate_does(asked, tiny_model, copied, tmp_path):
    """A copy is no second seed: it has a column of its own, with the same metrics."""
    path, alone = tmp_path / "figures.json", tmp_path / "alone.json"
    options = ("--samples", 0, "--limit", 20, "--probe-images", 30, "--json")
    shown = asked("compare", tiny_model, copied, *options, path)
    asked("evaluate", "--model-dir", copied, *options, alone)
    found, wanted = json.loads(path.read_text()), json.loads(alone.read_text())
    wanted.pop("written_by")
    assert [run["evaluation"] for run in found["runs"]] == [wanted, wanted]
    assert [column["seeds"] for column in found["columns"]] == [[0], [0]]
    error = cell(wanted["reconstruction"]["whole_code"])
    assert sum(line.split().count(error) for line in shown.splitlines()) >= 2


def test_models_that_cannot_be_compared_are_refused(asked, tmp_path):
    """Rejects a model beside itself, and models of two data sets."""
    folders = []
    for name in ("rbm", "capsnet"):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "model.keras").touch()
        RunFolder(folders[-1]).save(registry.settings(name), None, "1")
    twice = "rbm is given twice. Give different models."
    asked("compare", folders[0], folders[0], code=2, last=twice)
    asked("compare", folders[0], code=2, last="Received: one")
    RunFolder(folders[1]).save(registry.settings("capsnet", dataset="mnist"), None, "1")
    asked("compare", *folders, code=2, last="has the data set mnist, not fashion_mnist")
    given = ("compare", *folders, "--recorded", "--samples", 9)
    asked(*given, code=2, last="--samples has no effect with --recorded.")
    for path in ("nowhere", tmp_path / "none*"):
        asked("compare", path, folders[0], code=2, last="without a run")


def test_metrics_are_kept_for_the_report_until_the_model_changes(tmp_path):
    (tmp_path / "model.keras").write_bytes(b"one")
    assert runs.kept(tmp_path) == {}
    runs.keep(tmp_path, {"reconstruction": {"whole_code": 0.25}})
    assert runs.kept(tmp_path) == {"reconstruction": {"whole_code": 0.25}}
    assert runs.kept(tmp_path, [0]) == {}
    runs.keep(tmp_path, {"samples": {"prior": {"frechet": 2.0}}}, [0, 10])
    # Former names of metrics lead to those of now.
    assert runs.kept(tmp_path, [0, 10])["samples"]["prior"] == {"FID": 2.0}
    assert runs.kept(tmp_path, [1, 10]) == {}
    (tmp_path / "model.keras").write_bytes(b"another")
    assert runs.kept(tmp_path) == {}


def test_metrics_of_a_pretrained_model_are_not_written_into_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "_place", lambda: tmp_path)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "model.keras").touch()
    runs.keep(tmp_path / "mnist", {})
    assert [path.name for path in (tmp_path / "mnist").iterdir()] == ["model.keras"]


def test_a_report_has_the_metrics_of_the_last_evaluation(asked, copied, tmp_path):
    runs.keep(copied, {"reconstruction": {"whole_code": 0.4321}})
    page = tmp_path / "page.html"
    asked("report", "--model-dir", copied, "--limit", 30, "--out", page)
    text = page.read_text()
    assert "0.432" in text and json.loads((copied / runs.KEPT).read_text())
    # Nobody else has the folder; a sentence says how good the model is and how it was made.
    assert str(copied) not in text
    assert "with seed 0, tested on 30 images. Purity " in text


@pytest.mark.long
def test_a_model_is_measured_alike_from_a_store_and_in_memory(asked, tiny, tmp_path, monkeypatch):
    """Its images have the same fingerprints, and every metric and picture is the same."""
    monkeypatch.chdir(tmp_path)
    from keras_capsule_poe.data import load_images

    # Digits without a split: training and test images are views by number.
    digits = load_images("digits", limit=120).train
    np.savez_compressed("digits.npz", images=digits.images, labels=digits.labels)
    asked("train", "--dataset", "digits.npz", "--model-dir", "m", "--store", "stores", *tiny)
    assert len(list((tmp_path / "stores").iterdir())) == 1
    found = {}
    for name, places in (("stored", ("--store", "stores")), ("held", ())):
        pictures = []
        for command in (
            ("reconstruct",),
            ("traverse", "--image", "1"),
            ("sample", "--mode", "meanfield", "--start", "data", "--steps", "2"),
        ):
            asked(*command, "--model-dir", "m", "--out", "a.png", *places)
            pictures.append((tmp_path / "a.png").read_bytes())
        path = tmp_path / f"{name}.json"
        asked("evaluate", "--model-dir", "m", "--samples", "10", "--json", path, *places)
        asked("report", "--model-dir", "m", "--metrics", path, "--out", "a.html", *places)
        found[name] = pictures, json.loads(path.read_text())
    assert found["stored"] == found["held"] and found["held"][1]["samples"]["real"]
