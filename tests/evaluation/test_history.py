"""What was measured after each epoch, drawn."""

import pytest

from keras_capsule_poe.evaluation.model_page import history_chart

EPOCHS = [
    {"loss": 0.5, "margin_loss": 0.4, "accuracy": 0.8, "held_out_accuracy": 0.7, "seconds": 9.0},
    {"loss": 0.3, "margin_loss": 0.2, "accuracy": 0.9, "held_out_accuracy": 0.8, "seconds": 8.0},
]


@pytest.mark.parametrize("routed", [False, True])
def test_a_panel_for_each_kind_of_number(routed):
    epochs = [{**epoch, **({"logit_change_1": 0.1, "logit_change_2": 0.2} if routed else {})}
              for epoch in EPOCHS]  # fmt: skip
    panels = history_chart(epochs).axes
    assert [panel.get_ylabel() for panel in panels] == (
        ["loss", "accuracy", "mean change of routing logits"][: 3 if routed else 2]
    )
    lines = {line.get_label(): line for panel in panels for line in panel.get_lines()}
    assert list(lines["held out accuracy"].get_ydata()) == [0.7, 0.8]
    assert list(lines["loss"].get_xdata()) == [1, 2] and "seconds" not in lines
    assert len(lines) == (6 if routed else 4)
