"""Rates of contrastive steps: a row for each model, whose first epoch is not among them.

Rejected: what is compiled in the first epoch counted as the time of a step.
"""

import sys
import time

import contrastive_steps
import pytest


def test_a_machine_is_measured(monkeypatch, capsys):
    arguments = ["contrastive_steps.py", "--models", "machine", "--batch", "4", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--epochs", "2", "--product", "64"])
    contrastive_steps.main()
    product, _, _, row = capsys.readouterr().out.splitlines()
    assert product.startswith("tensorflow, a product of 64 rows: ")
    _, name, step, rate, first, _ = (cell.strip() for cell in row.split("|"))
    assert name == "machine"
    # Both are rounded.
    assert float(rate.replace(",", "")) * float(step) == pytest.approx(4e3, rel=0.05)
    assert float(first) > 2e-3 * float(step)


def test_the_first_epoch_is_not_of_the_steps(monkeypatch):
    class Model:
        def compile(self, *_, **__):
            pass

        def fit(self, *_, callbacks, **__):
            callbacks[0].seconds = [100.0, 2.0, 4.0, 3.0]

    monkeypatch.setitem(contrastive_steps.MODELS, "encoder", lambda images: (Model(), ()))
    row = contrastive_steps.measured("encoder", batch=6, steps=10, epochs=3)
    assert row == ("encoder", pytest.approx(300), pytest.approx(20), 100.0)


def test_an_epoch_s_seconds_are_its_own():
    clock = contrastive_steps.Clock()
    clock.set_model(type("Model", (), {"trainable_variables": [type("V", (), {"value": 0})]}))
    for seconds in (0.01, 0.5):
        clock.on_epoch_begin(0)
        time.sleep(seconds)
        clock.on_epoch_end(0)
    assert 0.01 <= clock.seconds[0] < clock.seconds[1] and clock.seconds[1] >= 0.5
