"""The search for where the plain form learns: its rows are valid, and a stopped one goes on."""

import json
import sys

import plain_form
import pytest

from keras_capsule_poe import registry


@pytest.mark.parametrize("name", plain_form.ROWS)
def test_rows_are_the_paper_s_form(name):
    settings = plain_form.ROWS[name]
    config = registry.settings("capsules", "paper")
    config.update(settings)
    config.check()
    encoder, decoder = config.encoder, config.decoder
    assert (encoder.initializer, encoder.activation_prior_weight, config.primary.center) == (
        "noise",
        0,
        False,
    )
    # One row says by its name what it leaves out.
    assert encoder.routing_iterations > 1
    assert (decoder.routing_iterations > 1) == ("without routing" not in name)
    assert not (encoder.whitening or decoder.offset or decoder.conditional or decoder.activity)


def test_rows_that_are_done_are_not_trained_again(tmp_path, monkeypatch, capsys):
    trained = []

    def train(problem, settings, folder):
        trained.append(settings)
        return None, dict.fromkeys(plain_form.COLUMNS, 0.5)

    monkeypatch.setattr(plain_form, "train", train)
    monkeypatch.setattr(plain_form, "Problem", lambda dataset, folder: folder.mkdir(exist_ok=True))
    call = ["plain_form", str(tmp_path), "--dataset", "digits", "--as", "mine", "--set"]
    for rate in ("0.1", "0.1", "0.2"):
        monkeypatch.setattr(sys, "argv", [*call, f"encoder.learning_rate={rate}"])
        plain_form.main()
    assert trained == [{"encoder.learning_rate": 0.1}, {"encoder.learning_rate": 0.2}]
    kept = json.loads((tmp_path / "digits" / "rows.json").read_text())
    assert kept["mine"]["settings"] == trained[1]
    assert "whole_code 0.5" in capsys.readouterr().out
