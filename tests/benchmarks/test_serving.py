"""Memory of many calls.

Rejected: a buffer that comes and goes taken for growth; growth that a single moment hides.
"""

import itertools

import pytest
import serving


@pytest.mark.parametrize("a_call, gained", [(0.0, 0.0), (0.1, 5.0)])
def test_only_what_grows_is_gained(monkeypatch, tmp_path, a_call, gained):
    buffers = itertools.cycle([0, 5, 5])
    asked = []
    (tmp_path / "model_card.json").write_text("{}")
    monkeypatch.setattr(serving.tf.saved_model, "load", lambda path: None)
    monkeypatch.setattr(serving, "answer", lambda model, card, i: asked.append(i) or {})
    monkeypatch.setattr(
        serving.measure, "resident_mb", lambda: 900 + a_call * len(asked) + next(buffers)
    )
    row = next(serving.lasting_rows(tmp_path, 200))
    # Of the second half of the calls, up to those between two moments without the buffer.
    assert row["gained_mb"] == pytest.approx(gained, abs=2.5 * a_call)
