"""Every command, through click's runner, on a tiny trained model."""

import importlib
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.cli.main import COMMANDS
from keras_capsule_poe.evaluation.baselines import SETS
from keras_capsule_poe.evaluation.report import cell


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where the classifier of digits is kept, once trained."""
    return tmp_path_factory.mktemp("cache")


def test_training_leaves_what_it_promises(tiny_model):
    for name in (
        "run.json", "model.keras", "samples-prior.png", "samples-posterior.png",
        "reconstructions.png", "1/saved_model.pb", "1/model_card.json",
    ):  # fmt: skip
        assert (tiny_model / name).is_file(), name
    assert any((tiny_model / "pictures").glob("decoder-*.png"))
    history = json.loads((tiny_model / "encoder" / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history] == [1, 2]
    for name in (
        "loss", "free_energy", "held_out_free_energy", "free_energy_gap", "probability_mean",
        "probability_spread", "orientation_concentration", "update_size",
    ):  # fmt: skip
        assert np.isfinite(history[-1][name]), name
    left = [path.name for path in tiny_model.rglob(".*")]
    records = {".run.json", ".done.json"}
    assert set(left) == {".lock", *records}, "temporary files were left behind"
    assert not list(tiny_model.rglob("checkpoints"))


def test_same_command_again_skips_finished_stages(capspoe, tiny_model, tiny):
    before = (tiny_model / "encoder" / "model.keras").stat().st_mtime_ns
    result = capspoe("train", "--dataset", "digits", "--model-dir", tiny_model, *tiny)
    assert result.exit_code == 0, result.output
    assert result.output.count("done before") == 5
    assert (tiny_model / "encoder" / "model.keras").stat().st_mtime_ns == before


def test_sample_grid_has_a_column_for_each_capsule(capspoe, tiny_model, tmp_path):
    sizes = {}
    for rows in (1, 3):
        out = tmp_path / f"grid{rows}.png"
        result = capspoe(
            "sample", "--model-dir", tiny_model, "--out", out, "--rows", rows, "--plain"
        )
        assert result.exit_code == 0, result.output
        with Image.open(out) as picture:
            sizes[rows] = picture.size
    cell = 2 * (28 + 2)
    assert sizes == {1: (3 * cell + 4, cell + 4), 3: (3 * cell + 4, 3 * cell + 4)}


@pytest.mark.parametrize("domain", ["prior", "half_space", "posterior"])
def test_sample_arrays(capspoe, tiny_model, tmp_path, domain):
    out = tmp_path / "samples.npz"
    arguments = ("sample", "--model-dir", tiny_model, "--out", out, "--n", 5, "--domain", domain)
    result = capspoe(*arguments, "--seed", 3)
    assert result.exit_code == 0, result.output
    with np.load(out) as arrays:
        images, capsule, codes = arrays["images"], arrays["capsule"], arrays["capsules"]
    assert images.shape == (5, 28, 28, 1)
    assert codes.shape == (5, 3, 4)
    assert images.min() >= 0 and images.max() <= 1
    lengths = np.linalg.norm(codes, axis=-1)
    np.testing.assert_array_equal(lengths.argmax(axis=1), capsule)
    np.testing.assert_array_equal((lengths > 0).sum(axis=1), 1)
    result = capspoe(*arguments, "--seed", 4)
    with np.load(out) as arrays:
        assert np.abs(arrays["images"] - images).max() > 0


def test_reconstruct_and_traverse_draw_grids(capspoe, tiny_model, tmp_path):
    cell = 2 * (28 + 2)
    for command, size in (
        (("reconstruct", "--n", 6), (6 * cell + 4, 6 * cell + 4)),
        (("traverse", "--capsule", 1, "--steps", 5), (5 * cell + 4, 4 * cell + 4)),
    ):
        out = tmp_path / f"{command[0]}.png"
        result = capspoe(*command, "--model-dir", tiny_model, "--out", out, "--plain")
        assert result.exit_code == 0, result.output
        with Image.open(out) as picture:
            assert picture.size == size


def test_evaluate_measures_and_writes_json(capspoe, tiny_model, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("CAPSPOE_CACHE", str(cache))
    path = tmp_path / "figures.json"
    page = tmp_path / "page.html"
    options = ("--model-dir", tiny_model, "--limit", 40)
    result = capspoe("evaluate", *options, "--samples", 30, "--json", path)
    assert result.exit_code == 0, result.output
    written = capspoe("report", *options, "--metrics", path, "--out", page)
    assert written.exit_code == 0, written.output
    figures = json.loads(path.read_text())
    sections = {"reconstruction", "free_energy", "probe", "neighbours", "clustering", "samples"}
    sections |= {"signs"}
    assert set(figures) == sections
    assert cell(figures["samples"]["posterior"]["frechet"]) in result.output
    assert cell(figures["samples"]["gaussian_mixture"]["coverage"]) in page.read_text()
    assert {"boltzmann_machine", "variational_autoencoder"}.isdisjoint(figures["samples"])
    energy = figures["free_energy"]
    # Sums of float32 means: the gap is their difference to rounding.
    assert energy["gap"] == pytest.approx(energy["test"] - energy["train"], abs=1e-4)
    # Pixels of digits are separable, so a probe on them beats chance (0.1) by far.
    assert figures["probe"]["pixels"] > 0.5
    assert cell(figures["reconstruction"]["whole_code"]) in result.output


@pytest.mark.long
def test_evaluate_trains_controls(capspoe, tiny_model, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("CAPSPOE_CACHE", str(cache))
    # One takes the model's own time if nothing is said.
    command = importlib.import_module("keras_capsule_poe.cli.measure")
    monkeypatch.setattr(command, "own_seconds", lambda folder: 0.3)
    path = tmp_path / "figures.json"
    options = ("--limit", 40, "--samples", 30, "--baselines", "trained", "--json", path)
    result = capspoe("evaluate", "--model-dir", tiny_model, *options)
    assert result.exit_code == 0, result.output
    figures = json.loads(path.read_text())["samples"]
    assert "boltzmann_machine" in figures
    assert 0.3 <= figures["vae_seconds"] < 30 and figures["vae_steps"] > 0
    assert "Variational autoencoder" in result.output


@pytest.mark.parametrize("options, seconds", [((), 7.0), (("--vae-seconds", 2), 2.0)])
def test_a_control_takes_the_models_own_time_at_most(
    capspoe, tiny_model, monkeypatch, options, seconds
):
    asked = []
    command = importlib.import_module("keras_capsule_poe.cli.measure")
    monkeypatch.setattr(command, "own_seconds", lambda folder: 7.0)
    report = importlib.import_module("keras_capsule_poe.evaluation.report")
    monkeypatch.setattr(report, "measure", lambda *args, **given: asked.append(given) or {})
    options = ("--model-dir", tiny_model, "--baselines", "trained", *options)
    assert capspoe("evaluate", *options).exit_code == 0
    (given,) = asked
    assert callable(given.pop("progress"))
    assert given == {"found": None, "baselines": "trained", "vae_seconds": seconds}


def test_time_for_a_control_that_is_not_asked_for_is_refused(capspoe, tiny_model):
    result = capspoe("evaluate", "--model-dir", tiny_model, "--vae-seconds", 1)
    assert result.exit_code == 2
    said = "--vae-seconds needs --baselines trained. Received: --baselines simple"
    assert said in " ".join(result.output.split())


def test_the_command_has_the_sets_of_controls_that_there_are():
    command = importlib.import_module("keras_capsule_poe.cli.measure").evaluate
    (option,) = (each for each in command.params if each.name == "baselines")
    assert tuple(option.type.choices) == SETS


@pytest.mark.long
def test_evaluate_over_seeds_gives_deviations(capspoe, tiny_model, tmp_path):
    path = tmp_path / "figures.json"
    other = shutil.copytree(tiny_model, tmp_path / "other")
    options = ("--samples", 0, "--limit", 20, "--probe-images", 30, "--json", path)
    result = capspoe("compare", "--mean", tiny_model, other, *options)
    assert result.exit_code == 0, result.output
    one, other = json.loads(path.read_text())["runs"]
    assert one == other
    assert f"{cell(one['reconstruction']['whole_code'])} ± 0" in result.output


def test_export_writes_the_next_version(capspoe, tiny_model):
    versions = {int(p.name) for p in tiny_model.iterdir() if p.name.isdigit()}
    result = capspoe("export", "--model-dir", tiny_model, "--domain", "posterior")
    assert result.exit_code == 0, result.output
    new = tiny_model / str(max(versions) + 1)
    assert json.loads((new / "model_card.json").read_text())["options"] == {"domain": "posterior"}


def test_info_shows_configuration_and_stages(capspoe, tiny_model):
    shown = capspoe("info", "--model-dir", tiny_model)
    assert "seed 0, limit 96" in shown.output.splitlines()[0]
    assert shown.exit_code == 0, shown.output
    assert "capsules 3" in shown.output
    as_json = json.loads(capspoe("info", "--model-dir", tiny_model, "--json").output)
    assert as_json["config"]["encoder"]["capsules"] == 3
    assert list(as_json["stages"]) == ["autoencoder", "features", "encoder", "decoder", "export"]


def test_dry_run_trains_nothing(capspoe, tmp_path):
    folder = tmp_path / "none"
    options = ("--limit", 100, "--held-out", 10, "--dry-run")
    result = capspoe("train", "--dataset", "digits", "--model-dir", folder, *options)
    assert result.exit_code == 0, result.output
    assert "90 training, 10 held-out and 297 test images" in result.output
    assert "576 x 8" in result.output and "20 x 16" in result.output
    assert "1,474,560 parameters" in result.output
    assert not folder.exists()


@pytest.mark.parametrize(
    "recipe, steps, rate", [("generation", 900, "0.2"), ("representation", 450, "0.05")]
)
def test_help_shows_the_defaults_of_the_recipe_asked_for(capspoe, recipe, steps, rate):
    result = capspoe("train", "--recipe", recipe, "--help")
    assert result.exit_code == 0
    shown = " ".join(result.output.split())
    assert f"Encoder: epochs. [default: enough for {steps} steps]" in shown
    assert f"Encoder: initial learning rate. [default: {rate}]" in shown


def test_every_command_has_help(capspoe):
    for command in COMMANDS:
        result = capspoe(command, "--help")
        assert result.exit_code == 0
        assert result.output.startswith("Usage:")


def test_other_images_than_those_of_the_run_are_refused(capspoe, tiny_model, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    saved = json.loads((tiny_model / "run.json").read_text())
    saved["config"]["limit"] = 95
    del saved["digest"]  # it is meant
    (folder / "run.json").write_text(json.dumps(saved))
    for command in (
        ("reconstruct", "--out", tmp_path / "a.png"),
        ("traverse", "--out", tmp_path / "a.png"),
        ("sample", "--mode", "chain", "--start", "data", "--out", tmp_path / "a.png"),
        ("evaluate", "--samples", 0),
    ):
        result = capspoe(*command, "--model-dir", folder)
        assert result.exit_code == 1, result.output
        assert "not those that" in result.output.strip().splitlines()[-1], result.output
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("span", ["nan", "inf", "-inf", "1e308", "2.1", "0", "-1"])
def test_spans_that_leave_every_code_at_the_edge(capspoe, tmp_path, span):
    result = capspoe("traverse", "--span", span, "--model-dir", tmp_path)
    assert result.exit_code == 2
    last = result.output.strip().splitlines()[-1]
    assert "at most 2, since capsules are shorter than 1" in last, result.output


def test_export_lists_the_domains_there_are(capspoe, tiny_model):
    result = capspoe("export", "--model-dir", tiny_model, "--domain", "half")
    assert result.exit_code == 2
    last = result.output.strip().splitlines()[-1]
    assert "'prior', 'half_space', 'posterior' in mode 'single'" in last


@pytest.mark.long
def test_evaluate_with_one_sample_of_each_kind(capspoe, tiny_model, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("CAPSPOE_CACHE", str(cache))
    options = ("--limit", 20, "--samples", 1, "--json", tmp_path / "figures.json")
    options = (*options, "--baselines", "trained", "--vae-seconds", 0)
    result = capspoe("evaluate", "--model-dir", tiny_model, *options)
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "figures.json").read_text())["samples"]
    assert figures["posterior"]["frechet"] is None and figures["real"]["recognised"] in (0, 1)
    assert figures["boltzmann_machine"]["recognised"] in (0, 1)
    assert "variational_autoencoder" not in figures
