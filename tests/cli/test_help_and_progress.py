"""Suggestions, completion, the name of the model, kept metrics, and traversals of off capsules."""

import io
import json
import sys
import time

import pytest
from click.shell_completion import ShellComplete

from keras_capsule_poe.cli import measure as metrics
from keras_capsule_poe.cli.main import main
from keras_capsule_poe.cli.terminal import working


@pytest.mark.parametrize(
    "words, near",
    [(["trian"], "train"), (["samples"], "sample"), (["sample", "--rwos", "3"], "--rows")],
)
def test_a_mistyped_word_is_answered_with_the_nearest(capspoe, words, near):
    result = capspoe(*words)
    assert result.exit_code == 2 and near in result.output
    assert "id you mean" in result.output


def completed(words, incomplete):
    found = ShellComplete(main, {}, "capspoe", "_CAPSPOE_COMPLETE")
    return [item.value for item in found.get_completions(words, incomplete)]


def test_the_shell_completes_models_and_data_sets(tmp_path, monkeypatch):
    (tmp_path / "saved_models" / "mine").mkdir(parents=True)
    (tmp_path / "saved_models" / "mine" / "model.keras").touch()
    (tmp_path / "prepared" / "kmnist").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    assert completed([], "tr") == ["train", "traverse"]
    assert completed(["sample", "--model-dir"], "") == [
        "fashion_mnist", "mnist", "saved_models/mine",
    ]  # fmt: skip
    assert completed(["explore"], "saved") == ["saved_models/mine"]
    assert completed(["train", "--dataset"], "k") == ["kmnist"]
    assert "digits" in completed(["train", "--dataset"], "")


def test_a_command_names_its_model(capspoe, tiny_model, tmp_path):
    out = tmp_path / "a.npz"
    result = capspoe("sample", "--model-dir", tiny_model, "--out", out)
    assert f"Model: {tiny_model}" in result.output
    (tmp_path / "saved_models").mkdir()


def test_metrics_are_kept_for_the_report_until_the_model_changes(tmp_path):
    (tmp_path / "model.keras").write_bytes(b"one")
    assert metrics.kept(tmp_path) == {}
    metrics.keep(tmp_path, {"reconstruction": {"whole_code": 0.25}})
    assert metrics.kept(tmp_path) == {"reconstruction": {"whole_code": 0.25}}
    (tmp_path / "model.keras").write_bytes(b"another")
    assert metrics.kept(tmp_path) == {}


def test_metrics_of_a_pretrained_model_are_not_written_into_the_package(tmp_path, monkeypatch):
    from keras_capsule_poe import pretrained

    monkeypatch.setattr(pretrained, "_place", lambda: tmp_path)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "model.keras").touch()
    metrics.keep(tmp_path / "mnist", {})
    assert [path.name for path in (tmp_path / "mnist").iterdir()] == ["model.keras"]


def test_a_capsule_that_is_off_is_refused_with_images_on_which_it_is_on(
    capspoe, tiny_model, tmp_path, monkeypatch
):
    from keras_capsule_poe import figures

    # All capsules of so short a training are a little on.
    monkeypatch.setattr(figures, "ACTIVE", 2.0)
    out = tmp_path / "a.png"
    arguments = ("traverse", "--model-dir", tiny_model, "--out", out, "--capsule", 1)
    result = capspoe(*arguments, "--image", 0)
    assert result.exit_code == 2 and not out.exists()
    assert "not active on test image 0" in result.output and "without --image" in result.output
    result = capspoe(*arguments)
    assert result.exit_code == 0 and "Capsule 1 alone" in result.output, result.output


@pytest.mark.parametrize("kind", ["pdf", "svg"])
def test_vector_files_have_labels(capspoe, tiny_model, tmp_path, kind):
    out = tmp_path / f"a.{kind}"
    arguments = ("sample", "--model-dir", tiny_model, "--out", out)
    assert capspoe(*arguments, "--theme", "dark", "--cell", 0.3).exit_code == 0
    assert out.stat().st_size > 1000
    result = capspoe(*arguments, "--plain")
    assert result.exit_code == 2 and "--plain needs .png" in result.output


def test_samples_of_one_capsule(capspoe, tiny_model, tmp_path):
    import numpy as np

    out = tmp_path / "a.npz"
    arguments = ("sample", "--model-dir", tiny_model, "--out", out, "--n", 6, "--capsule", 2)
    assert capspoe(*arguments).exit_code == 0
    with np.load(out) as arrays:
        assert arrays["capsule"].tolist() == [2] * 6
    result = capspoe(*arguments[:-1], 3)
    assert result.exit_code == 2 and "capsule" in result.output


def test_a_terminal_sees_what_a_command_does(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with working("encoding") as step:
        step("sampling")
        time.sleep(0.5)
    text = sys.stderr.getvalue()
    assert "encoding " in text and "sampling " in text and "0:00:00" in text
    # Nothing of it is left.
    assert text.endswith("\x1b[1A\x1b[2K")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with working("encoding"):
        pass
    assert not sys.stderr.getvalue()


def test_a_report_has_the_metrics_of_the_last_evaluation(capspoe, tiny_model, tmp_path):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    metrics.keep(folder, {"reconstruction": {"whole_code": 0.4321}})
    page = tmp_path / "page.html"
    result = capspoe("report", "--model-dir", folder, "--limit", 30, "--out", page)
    assert result.exit_code == 0, result.output
    assert "0.432" in page.read_text() and json.loads((folder / metrics.KEPT).read_text())
