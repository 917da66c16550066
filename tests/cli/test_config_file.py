"""Files of settings: what they name is trained, flags win, what contradicts itself is said.

Rejected: a file for another recipe whose sections are set beside the first one's.
"""

import re

import pytest


def passes(shown):
    """How often each stage of a plan goes through the images; its minutes are measured."""
    found = re.findall(r"^  (\w+) +(\d+) epochs", shown.output, re.MULTILINE)
    assert found, shown.output
    return found


def test_config_file(capspoe, tmp_path):
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("dataset = 'digits'\n[encoder]\ncapsules = 7\n[decoder]\nepochs = 3\n")
    bad.write_text("[encoder\ncapsules = 7\n")
    result = capspoe("train", "--config", good, "--decoder-epochs", 5, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "7 x 16" in result.output
    assert "decoder            5 epochs" in result.output
    refused = capspoe("train", "--config", bad)
    assert refused.exit_code == 2 and "bad.toml" in refused.output.splitlines()[-1]


def test_a_file_names_its_model_and_its_recipe(capspoe, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("dataset = 'digits'\nrecipe = 'paper'\n")
    plan = ("train", "--dataset", "digits", "--dry-run")
    first, paper = passes(capspoe(*plan)), passes(capspoe(*plan, "--recipe", "paper"))
    assert first != paper
    for more in ((), ("--recipe", "paper"), ("--preset", "paper"), ("--preset=paper",)):
        assert passes(capspoe("train", "--config", path, *more, "--dry-run")) == paper
    path.write_text("dataset = 'digits'\npreset = 'paper'\n")
    assert passes(capspoe("train", "--config", path, "--dry-run")) == paper
    path.write_text("model = 'rbm'\ndataset = 'digits'\n[rbm]\nhidden = 7\n")
    shown = capspoe("train", "--config", path, "--rbm-epochs", 2, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "7" in shown.output and "rbm" in shown.output


@pytest.mark.parametrize("text", ["seed = 1" + 5000 * "0", "a = " + 3000 * "[", "seed = \xff"])
def test_a_file_that_cannot_be_read_is_a_line(capspoe, tmp_path, text):
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("latin1"))
    refused = capspoe("train", "--dataset", "digits", "--config", path, "--dry-run")
    assert refused.exit_code == 2
    assert f"Cannot read the configuration {path}" in refused.output.splitlines()[-1]


@pytest.mark.parametrize(
    "name, value, wanted",
    [("model", "rbm", "capsules"), ("recipe", "paper", "affine"), ("preset", "paper", "affine")],
)
def test_a_file_for_another_is_refused(capspoe, tmp_path, name, value, wanted):
    path = tmp_path / "settings.toml"
    path.write_text(f"dataset = 'digits'\n{name} = {value!r}\n")
    refused = capspoe("train", "--config", path, f"--{name}", wanted, "--dry-run")
    assert refused.exit_code == 2
    line = refused.output.splitlines()[-1]
    assert f"{path} is for the {name} {value!r}. Received: --{name} {wanted}" in line
